"""Says what a confined process could still do here, because the kernel lacks a feature.

Lives here: the sentences, and saying them once on stderr. Not here: the features (`filesystem`,
`system_calls`). Called by who starts a confined child, and by `torchreel doctor`.
"""

from __future__ import annotations

import sys
from functools import cache

from torchreel.sandbox import filesystem, system_calls

_WITHOUT_LANDLOCK = (
    "a replay or reduction of a stranger's store is held by the rules for graphs alone, and could "
    "write files"
)
_SINCE = (
    (2, "files can't be renamed between folders in there"),
    (3, "a hole in the rules for graphs could empty files of yours"),
)
"""The lacks of a Landlock older than each version, where nothing else covers them."""


def missing() -> list[str]:
    """Return a sentence for each thing that this machine can't keep a confined process from."""
    if sys.platform != "linux":
        return [f"no sandbox on {sys.platform}: {_WITHOUT_LANDLOCK}, start programs and connect."]
    found = []
    version = filesystem.abi()
    if not version:
        found.append(f"no Landlock in this kernel or container: {_WITHOUT_LANDLOCK}.")
    found += [
        f"this kernel's Landlock is of version {version}, not {since}: {lack}."
        for since, lack in _SINCE
        if 0 < version < since
    ]
    if not system_calls.is_available():
        found.append(
            "no seccomp filter in this kernel, container or processor: a hole in the rules for "
            "graphs could reach the network."
        )
    return found


@cache
def warn_once() -> None:
    """Say on stderr what is missing; the second time nothing."""
    for sentence in missing():
        print(f"sandbox: {sentence}", file=sys.stderr)

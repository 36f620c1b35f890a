"""The suite of this folder under several releases of torch: `make compat`.

python -m tests.compat [--if-available] [RELEASE ...]

All known releases by default; 'newest' is the last one. With --if-available, a release whose torch
can't be installed here (no network, no wheel, no room) is no failure: a line says so, and 'newest'
is the last one that can, if it is newer than the installed one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata

from tests.compat.environments import ROOT, VERSIONS, EnvironmentFailed, python_of
from tests.compat.programs import STORES
from torchreel.releases import environments

SUITE = (
    "tests/compat/test_systems.py", "tests/recorder/test_collectives.py", "tests/torch_compat",
    "tests/docs/test_events.py",
)  # fmt: skip
OTHERS = "tests/compat/test_other_releases.py"


def main(words: list[str]) -> int:
    """Run the suite under each release; returns 1 if it fails under one of them."""
    optional = "--if-available" in words
    words = [word for word in words if word != "--if-available"]
    releases = [
        release
        for word in words or VERSIONS
        for release in (_newest(optional=optional) if word == "newest" else [word])
    ]
    unknown = [release for release in releases if release not in VERSIONS]
    if unknown:
        print(f"compat: no release {', '.join(unknown)}: there are {', '.join(VERSIONS)}, newest.")
        return 2
    with tempfile.TemporaryDirectory(prefix="torchreel-compat-") as stores:
        os.environ[STORES] = stores
        releases = [release for release in releases if not optional or _is_available(release)]
        results = {release: _run(release, *SUITE) for release in releases}
        # Now there are stores of the others to be read.
        for release in releases if len(releases) > 1 else ():
            results[release] = results[release] or _run(release, OTHERS)
    for release, result in results.items():
        print(f"torch {VERSIONS[release]}: {result or 'passed'}")
    return 1 if any(results.values()) else 0


def _newest(*, optional: bool) -> list[str]:
    """Return the newest release; where it is optional, the newest that can be had, or none."""
    newest_first = list(reversed(VERSIONS))
    if not optional:
        return newest_first[:1]
    installed = ".".join(metadata.version("torch").split(".")[:2])
    newer = newest_first[: newest_first.index(installed)] if installed in VERSIONS else []
    return next(([release] for release in newer if _is_available(release)), [])


def _is_available(release: str) -> bool:
    """Return True if pip lets an environment have a release's torch; it is made if need be.

    One that was made under other settings of pip is not enough: pip would change its torch.
    """
    version = VERSIONS[release]
    try:
        python = environments.make(version, lambda text: print(text, flush=True))
        environments.install(python, "--dry-run", "--no-deps", f"torch=={version}")
    except EnvironmentFailed as error:
        print(f"torch {version}: NOT RUN, for it can't be installed here: {error}")
        return False
    return True


def _run(release: str, *suite: str) -> str:
    """Return what went wrong under a release; '' if nothing did."""
    began = time.monotonic()
    try:
        python = python_of(release)
    except EnvironmentFailed as error:
        return str(error)
    ready = time.monotonic()
    print(f"torch {VERSIONS[release]}: environment after {ready - began:.0f} s", flush=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-m", "not exhaustive", *suite], cwd=ROOT
    )
    print(f"torch {VERSIONS[release]}: suite in {time.monotonic() - ready:.0f} s", flush=True)
    return "" if done.returncode == 0 else f"the suite failed (status {done.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

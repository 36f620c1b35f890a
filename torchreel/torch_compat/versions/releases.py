"""The releases of torch that torchreel was tested with, and the one that is installed.

Lives here: release numbers.  Not here: the names that a release has (`names`).  Called by the
declarations of private names, by `doctor` and by `record`; none of it imports torch.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import metadata
from typing import NamedTuple

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_VERSION = re.compile(rf"{_RELEASE.pattern}(?:\.\d+)*(a|b|rc|\.dev)?")


class Release(NamedTuple):
    """A minor release of torch, such as 2.13; its patch releases have the same private names."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


KNOWN = (Release(2, 12), Release(2, 13), Release(2, 14), Release(2, 15))
"""The releases that `make compat` runs.  Another one is added here, with what it changes."""


class Installed(NamedTuple):
    """A version of torch, as a release that is known or not.

    A build before a release (`2.15.0a0+git...`) is not known: it has some of the changes.
    """

    version: str
    release: Release | None

    @property
    def is_known(self) -> bool:
        """Return True if torchreel knows which private names this torch has."""
        return self.release is not None


@cache
def parse(text: str) -> Release:
    """Read a release such as '2.13'.  Raises ValueError for anything else."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        raise ValueError(f"a release of torch reads like 2.13, not {text!r:.40}")
    return Release(int(match[1]), int(match[2]))


@cache
def of_version(version: str) -> Installed:
    """Find the release of a version such as '2.13.0+cpu'."""
    match = _VERSION.match(version)
    if match is None or match[3]:
        return Installed(version, None)
    release = Release(int(match[1]), int(match[2]))
    return Installed(version, release if release in KNOWN else None)


def installed() -> Installed:
    """Return the torch of this process or environment; its version is '' where there is none."""
    loaded = sys.modules.get("torch.version")
    if loaded is not None:
        return of_version(str(loaded.__version__))
    try:
        return of_version(metadata.version("torch"))
    except metadata.PackageNotFoundError:
        return Installed("", None)


def known_range() -> str:
    """Return the known releases as text: '2.12 to 2.15'."""
    return f"{KNOWN[0]} to {KNOWN[-1]}"

"""The packages of an environment that torch does not need: a repro may not import them.

Lives here: looking at the metadata of installed distributions. Not here: hiding the packages
(`minifier.repro.runner`). Needs the standard library alone: the Python of another environment runs
this file.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata

# What torch imports where it finds it, without declaring it.
_OPTIONAL = ("numpy", "packaging", "psutil", "triton")


@cache
def foreign_packages() -> frozenset[str]:
    """Return the top-level packages of this environment that torch does not need."""
    needed = _closure("torch")
    # torchreel is named, because the metadata of an editable installation does not say it.
    return frozenset({"torchreel"}) | frozenset(
        package
        for package, distributions in packages().items()
        if package not in _OPTIONAL and not needed & {_normalised(name) for name in distributions}
    )


def needed_packages(wanted: set[str]) -> set[str]:
    """Top-level packages, with those of the distributions that theirs require."""
    known = packages()
    distributions = {name for package in wanted for name in known.get(package, ())}
    required = {name for found in distributions for name in _closure(found)}
    return wanted | {
        package
        for package, names in known.items()
        if required & {_normalised(name) for name in names}
    }


def packages() -> Mapping[str, list[str]]:
    """Return the top-level packages of this environment, with the distributions that have them.

    Without those that setuptools, once it is imported, adds to `sys.path` for itself: the repro's
    process needs them as soon as Inductor imports setuptools.
    """
    path = sys.path
    sys.path = [entry for entry in path if not entry.endswith("_vendor")]
    try:
        return metadata.packages_distributions()
    finally:
        sys.path = path


def _closure(root: str) -> set[str]:
    """Return a distribution and all that it requires, by normalised name."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = _normalised(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names = (re.match(r"[\w.-]+", line) for line in required if "extra ==" not in line)
        waiting += [match[0] for match in names if match]
    return found


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _torch() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "torch": _torch(),
                "python": platform.python_version(),
                "prefix": sys.prefix,
                "foreign": sorted(foreign_packages()),
            }
        )
    )

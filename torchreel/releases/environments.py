"""An environment for each release of torch, in the user's cache: torch alone, made on first use.

Lives here: finding one, making one with pip, and looking into one that the user names. Not here:
what runs in it (`minifier.repro`, `tests.compat`). The wheels of PyPI bring CUDA's libraries
along, which are most of the size; pip's own settings name another index.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from torchreel.errors import EnvironmentFailed, UsageError
from torchreel.releases import packages
from torchreel.releases.results import order_of
from torchreel.torch_compat.versions.releases import KNOWN

VERSIONS = {
    "2.9": "2.9.1",
    "2.10": "2.10.0",
    "2.11": "2.11.0",
    "2.12": "2.12.1",
    "2.13": "2.13.0",
    "2.14": "2.14.1",
    "2.15": "2.15.0",
}
"""The version that stands for each release."""
GIGABYTES = 7.0
"""The most disk space that one environment has taken."""

_LONGEST = 1_800  # seconds that pip may take: three minutes, where 2.5 GB load in one
_ASKED = 120  # seconds that an interpreter may take to name its packages
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_BESIDE_TORCH = ("numpy", "setuptools")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """An interpreter and the torch that it imports."""

    python: Path
    torch: str
    """The version."""
    foreign: frozenset[str]
    """The top-level packages that this torch does not need."""


def version_of(text: str) -> str:
    """Return the version that '2.14' or '2.14.0' stands for.  Raises UsageError for other text."""
    if not _VERSION.fullmatch(text):
        raise UsageError(f"A release of torch reads like 2.14 or 2.14.0, not {text!r:.40}.")
    return VERSIONS.get(text, text)


def wanted_versions(
    named_releases: Sequence[str], since: str | None, *, named: bool = False
) -> tuple[str, ...]:
    """Return the versions that options mean: without any, those since the oldest supported one.

    `named`: environments were named, which are enough where no release is.
    Raises UsageError for what is no release.
    """
    chosen = [version_of(text) for text in named_releases]
    if since is None and not chosen and not named:
        since = str(KNOWN[0])
    if since is not None:
        first = order_of(version_of(since))
        chosen += [version for version in VERSIONS.values() if order_of(version) >= first]
    return tuple(sorted(set(chosen), key=order_of))


def folder_of(version: str) -> Path:
    """Return the folder of a version's environment, which may not exist yet."""
    return user_cache_path("torchreel") / "environments" / version


def found(version: str) -> Path | None:
    """Return the interpreter of a version's environment.

    None if it was not made yet, or if its torch is another one by now.
    """
    folder = folder_of(version)
    python, stamp = folder / "bin" / "python", folder / "stamp"
    complete = stamp.is_file() and stamp.read_text() == _recipe(version)
    has_torch = any(folder.glob(f"lib/python*/site-packages/torch-{version}*.dist-info"))
    return python if complete and has_torch and python.exists() else None


def make(version: str, say: Say) -> Path:
    """Return the interpreter of a version's environment, which is made if need be.

    Raises EnvironmentFailed where pip can't make it or the disk has no room for it.
    """
    with _locked(version):
        existing = found(version)
        if existing is not None:
            return existing
        folder = folder_of(version)
        _check_room(folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        say(f"making {folder}: torch {version} and its libraries, up to {GIGABYTES:g} GB")
        try:
            _call([sys.executable, "-m", "venv", str(folder)])
            install(folder / "bin" / "python", _requirement(version), *_BESIDE_TORCH)
        except EnvironmentFailed:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / "stamp").write_text(_recipe(version))
        return folder / "bin" / "python"


def install(python: Path, *arguments: str) -> None:
    """Have pip install something into an environment.  Raises EnvironmentFailed."""
    _call([str(python), "-m", "pip", "install", "--quiet", "--no-input", *arguments])


def look_into(python: str | Path) -> Environment:
    """Find out which torch an interpreter has.

    Raises UsageError for what is no interpreter, or has no torch.
    """
    path = shutil.which(python)
    if path is None:
        raise UsageError(f"{str(python)!r:.200} is no program: name the Python of an environment.")
    try:
        answer = _call([path, "-I", str(packages.__file__)], longest=_ASKED)
        data = json.loads(answer)
        torch, foreign = str(data["torch"]), frozenset(map(str, data["foreign"]))
    except (EnvironmentFailed, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{str(python)!r:.200} is no Python that works: {error}") from error
    if not torch:
        raise UsageError(f"The Python {str(python)!r:.200} has no torch: install one into it.")
    return Environment(Path(path).absolute(), torch, foreign)


def _requirement(version: str) -> str:
    """Return the requirement for pip: the version, or the newest patch of a release."""
    return f"torch=={version}" if version.count(".") == 2 else f"torch=={version}.*"


def _recipe(version: str) -> str:
    """Return everything that decides the installed packages, as one text."""
    return "\n".join([_requirement(version), *_BESIDE_TORCH, sys.version]) + "\n"


@contextmanager
def _locked(version: str) -> Iterator[None]:
    """Keep other processes from making the same environment meanwhile."""
    path = folder_of(f"{version}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 1e9
    if free < GIGABYTES:
        raise EnvironmentFailed(
            f"An environment takes up to {GIGABYTES:g} GB, and {folder} has {free:.1f} GB left: "
            "make room, or name one that you have with --python."
        )


def _call(command: Sequence[str], longest: float = _LONGEST) -> str:
    """Run a command; returns what it printed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=longest
        )
    except OSError as error:
        raise EnvironmentFailed(f"{command[0]} can't be run: {error}.") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailed(f"{_named(command)} took more than {longest:g} s.") from error
    if done.returncode:
        raise EnvironmentFailed(f"{_named(command)} failed: {_reason(done.stderr)}")
    return done.stdout


def _named(command: Sequence[str]) -> str:
    words = [word for word in command[1:] if not word.startswith("-") or word == "-m"]
    return " ".join([Path(command[0]).name, *words])


def _reason(errors: str) -> str:
    """Return pip's last error that names a cause, else the last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("ERROR:") and "for help visit" not in line]
    lines = causes or lines
    return lines[-1].removeprefix("ERROR: ") if lines else "it said nothing"

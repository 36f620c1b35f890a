"""Is everything here that torchreel needs? One finding per thing looked at.

Lives here: the examination. Not here: its rendering (`commands.doctor`), the attach points
themselves (`recorder.attach`). Called by `torchreel doctor` and by programs.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from torchreel.errors import StoreError
from torchreel.sandbox import filesystem, missing
from torchreel.store import Store
from torchreel.store.addressing import default_store
from torchreel.store.passwords import hidden
from torchreel.torch_compat.versions import releases
from torchreel.torch_compat.versions.names import State as NameState
from torchreel.torch_compat.versions.names import TorchName
from torchreel.torch_compat.versions.used import missing_names, names_used

State = Literal["ok", "missing", "warning"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `missing` is something that recording or replay needs."""

    what: str
    state: State
    found: str
    advice: str = ""


def examine(target: str | None = None) -> list[Finding]:
    """Look at Python, torch and its private names, the C++ compiler, and the store at `target`."""
    return [
        _python(),
        _torch(),
        entry_point(),
        _compiler(),
        _sandbox(),
        _store(target),
        *_attach_points(),
        _names(),
    ]


def _python() -> Finding:
    """Return the interpreter; its version was checked when torchreel was installed."""
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _torch() -> Finding:
    torch = releases.installed()
    if not torch.version:
        advice = "Install torch into this environment."
        return Finding("torch", "missing", "not installed", advice)
    if torch.is_known:
        return Finding("torch", "ok", torch.version)
    known = f"no release that this torchreel was tested with ({releases.known_range()})"
    return Finding("torch", "ok", f"{torch.version}, {known}")


def entry_point() -> Finding:
    """Check that `import torch` calls our entry point: `torchreel record` relies on it."""
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        advice = "Unset it: torch then ignores the entry point that recording starts from."
        return Finding("entry point", "missing", "TORCH_DEVICE_BACKEND_AUTOLOAD=0", advice)
    points = metadata.entry_points(group="torch.backends")
    if any(point.value.startswith("torchreel.") for point in points):
        return Finding("entry point", "ok", "torch.backends: torchreel")
    advice = "Install torchreel with pip; a source tree on the path has no entry points."
    return Finding("entry point", "missing", "not declared", advice)


def _compiler() -> Finding:
    """Return the C++ compiler that Inductor would call on a CPU."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    path = next((found for name in wanted if (found := shutil.which(name))), None)
    if path is None:
        advice = "Install g++ or set CXX: torch.compile generates C++ on a CPU."
        return Finding("C++ compiler", "missing", f"no {' or '.join(wanted)}", advice)
    try:
        command = [path, "--version"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("C++ compiler", "missing", f"{path} can't be run: {error}", "Set CXX.")
    version = (shown.stdout.splitlines() or [""])[0]
    return Finding("C++ compiler", "ok", f"{path} ({version})")


def _sandbox() -> Finding:
    """Check the sandbox, which keeps a replay of a stranger's store from doing harm."""
    lacking = missing()
    if lacking:
        advice = "Replay and reduce only stores of people you trust, or on a newer Linux."
        return Finding("sandbox", "warning", " ".join(lacking), advice)
    return Finding("sandbox", "ok", f"Landlock {filesystem.abi()} and seccomp")


def _store(target: str | None) -> Finding:
    """Check that the store opens for writing, or that one can be made in its place."""
    target = hidden(target) if target else default_store()
    try:
        if "://" in target or Path(target).exists():
            Store.open(target, write=True).close()
            return Finding("store", "ok", f"{target} is writable")
        with tempfile.TemporaryDirectory(dir=Path(target).absolute().parent) as folder:
            Store.open(Path(folder) / "probe.db", create=True).close()
    except (StoreError, OSError) as error:
        return Finding("store", "missing", str(error), "Name another place with -o.")
    return Finding("store", "ok", f"{target} can be made")


def _attach_points() -> list[Finding]:
    """Look for every function of torch that a probe replaces."""
    try:
        from torchreel.recorder.probes import survey

        points = survey()
    except ImportError as error:
        return [Finding("attach points", "missing", str(error), "Install torch.")]
    found = [_attach_point(point, state) for point, state in points if state in _SHOWN]
    absent = [point for point, state in points if state == "not in this torch"]
    return [*found, *([_absent(absent, len(points))] if absent else [])]


def _names() -> Finding:
    """Look for every name of torch that replay, minifier and the formats use."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        return Finding("names of torch", "missing", str(error), "Install torch.")
    absent, torch = missing_names(), releases.installed()
    if not absent:
        return Finding("names of torch", "ok", f"all {len(names_used())} that are used")
    state: State = "missing" if torch.is_known else "warning"
    detail = (
        f"{len(absent)} of {len(names_used())} not in torch {torch.version}: {', '.join(absent)}"
    )
    return Finding("names of torch", state, detail, "What needs them fails, and says so.")


_SHOWN = ("found", "missing")
"""States that get a line each; a name of other releases gets none."""


def _attach_point(point: TorchName, state: NameState) -> Finding:
    if state == "found":
        return Finding(str(point), "ok", point.why)
    advice = "The recorder leaves this out, and says so in every recording."
    return Finding(str(point), "missing", f"not in this torch: {point.why}", advice)


def _absent(points: Sequence[TorchName], total: int) -> Finding:
    """Say in one line what a torch of an unknown release does not have."""
    names = ", ".join(str(point) for point in points)
    return Finding(
        "attach points",
        "warning",
        f"{len(points)} of {total} not in torch {releases.installed().version}: {names}",
        "Everything else is recorded. Look for a newer torchreel, which knows this release.",
    )

"""The programs that make up the C++ compiler, by their paths.

Lives here: what Inductor starts for a kernel, and what that starts in turn. Not here: the right to
start them (`filesystem`). Asks the compiler itself, so it is called before a process is confined.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc")
# What a driver runs; clang has the compiler proper in itself.
_PARTS = ("cc1plus", "cc1", "collect2", "lto-wrapper", "as", "ld", "ld.lld", "ld.gold")
_GPU_COMPILERS = ("nvcc", "ptxas", "hipcc")
_SECONDS = 20.0
_INTERPRETER = 3  # PT_INTERP of <elf.h>
_HEAD = 1 << 16  # bytes: the linker puts it first


@cache
def cpp_compiler() -> tuple[Path, ...]:
    """Return the compiler, its parts, and the dynamic loader that starts each of them; once a
    process.
    """
    drivers = [found for name in _names() if (found := shutil.which(name))]
    paths = [*drivers, *(part for driver in _distinct(drivers) for part in _parts(driver))]
    programs = _distinct(paths)
    return (*programs, *_distinct(filter(None, map(_loader, programs))))


@cache
def gpu_compilers() -> tuple[Path, ...]:
    """Return the compilers for GPUs that Triton brings along, and those that are installed."""
    triton = find_spec("triton")
    folder = Path(str(triton.origin if triton is not None else "")).parent
    found = [*folder.glob("backends/*/bin/*"), *filter(None, map(shutil.which, _GPU_COMPILERS))]
    programs = [path for path in _distinct(found) if path.is_file()]
    return (*programs, *_distinct(filter(None, map(_loader, programs))))


@cache
def python(executable: str = "") -> tuple[Path, ...]:
    """Return this Python or that of another environment, and its dynamic loader."""
    programs = _distinct([executable or sys.executable])
    return (*programs, *_distinct(filter(None, map(_loader, programs))))


def _names() -> list[str]:
    """Return those that Inductor may take: a variable may name a wrapper and its compiler."""
    chosen = [shlex.split(os.environ.get(variable, "")) for variable in ("CXX", "CC")]
    return [*(word for words in chosen for word in words), *_COMPILERS]


def _distinct(paths: object) -> list[Path]:
    return list(dict.fromkeys(Path(path).resolve() for path in paths))  # type: ignore[attr-defined]


def _parts(driver: Path) -> list[str]:
    found = [_part(driver, name) for name in _PARTS]
    return [path for path in found if path]


def _part(driver: Path, name: str) -> str:
    """Return the path of a program that a compiler driver calls, in its own folders or in PATH."""
    command = [str(driver), f"-print-prog-name={name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return shutil.which(done.stdout.strip() or name) or ""


def _loader(program: Path) -> str:
    """Return the dynamic loader that a program names (ELF, 64 bits); '' where there is none."""
    try:
        with program.open("rb") as file:
            data = file.read(_HEAD)
        if data[:5] != b"\x7fELF\x02":
            return ""
        offset = struct.unpack_from("<Q", data, 32)[0]
        size, count = struct.unpack_from("<HH", data, 54)
        for start in range(offset, offset + size * count, size):
            kind, _, place = struct.unpack_from("<IIQ", data, start)
            if kind == _INTERPRETER:
                return data[place : data.index(b"\0", place)].decode()
    except (OSError, struct.error, ValueError):
        return ""
    return ""

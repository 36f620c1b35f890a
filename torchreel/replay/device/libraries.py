"""Builds and loads `stand_in.cpp`, once a machine and version of torch.

Not here: what Python sees of the device (`torch_names`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import torch
from platformdirs import user_cache_path

from torchreel.errors import UnsupportedError

_SOURCE = Path(__file__).with_name("stand_in.cpp")
_loaded: list[Path] = []
_SECONDS = 300  # some 5 where nothing else runs


def load(devices: int) -> None:
    """Have torch's C++ take this process for one with so many CUDA devices, for good.

    Raises UnsupportedError where there is no C++ compiler, or it fails.
    """
    path = user_cache_path("torchreel") / "device" / f"stand_in-{_digest()}.so"
    if not path.exists():
        _build(path)
    ctypes.CDLL(str(path)).torchreel_stand_in(devices)
    _loaded.append(path)


def stands_in() -> bool:
    """Whether this process was taken in: it has no device that it says it has."""
    return bool(_loaded)


def _digest() -> str:
    parts = (_SOURCE.read_text(), torch.__version__, torch.version.git_version)
    return hashlib.sha256(
        "\0".join(map(str, (*parts, sysconfig.get_platform()))).encode()
    ).hexdigest()[:16]


def _build(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(torch.__file__).parent
    own = path.with_suffix(f".{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CXX", "g++")),
        "-shared", "-fPIC", "-O0", "-std=c++20", f"-I{folder / 'include'}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        "-o", str(own), str(_SOURCE), f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(_REFUSAL.format(error)) from error
    if done.returncode:
        raise UnsupportedError(_REFUSAL.format((done.stderr.strip() or "it failed")[-300:]))
    own.replace(path)  # in one step: another replay may be building it too


_REFUSAL = (
    "torch aborts where it traces a CUDA graph on a machine without a GPU, and what keeps it from "
    "that could not be built ({}): install a C++ compiler (CXX), or replay where there is a GPU"
)

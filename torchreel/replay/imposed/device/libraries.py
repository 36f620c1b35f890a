"""Builds and loads `stand_in.cpp`, once a machine and version of torch.

Not here: what Python sees of the device (`answers`). A confined child may neither keep what it
builds nor read the user's cache: who starts it puts a copy into its folder (`prepare`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from torchreel import sandbox
from torchreel.errors import UnsupportedError
from torchreel.replay.imposed.attention import Attention

_SOURCE = Path(__file__).with_name("stand_in.cpp")
_loaded: list[Path] = []
_SECONDS = 300  # some 5 where nothing else runs


def load(devices: int, attentions: Sequence[Attention] = ()) -> None:
    """Have torch's C++ take this process for one with so many CUDA devices, for good.

    Scaled dot-product attention is computed by its definition where `attentions` has no other way.

    Raises UnsupportedError where there is no C++ compiler, or it fails.
    """
    path = Path(tempfile.gettempdir(), _name()) if sandbox.is_confined() else _kept()
    if not path.exists():
        _build(path)
    library = ctypes.CDLL(str(path))
    library.torchreel_stand_in(devices)
    rows = [number for one in attentions for number in one.row()]
    library.torchreel_attention((ctypes.c_int64 * len(rows))(*rows), len(attentions))
    _loaded.append(path)


def prepare(folder: Path) -> None:
    """Put the library into the folder of a confined child; it says so itself where there is none.

    Imports torch the first time, to build it.
    """
    kept = _kept()
    with suppress(OSError, UnsupportedError):
        if not kept.exists():
            _build(kept)
        shutil.copy(kept, folder / kept.name)


def _kept() -> Path:
    return user_cache_path("torchreel") / "device" / _name()


def stands_in() -> bool:
    """Return True if this process was taken in: it has no device that it says it has."""
    return bool(_loaded)


def _name() -> str:
    parts = (_SOURCE.read_text(), version("torch"), sysconfig.get_platform())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"stand_in-{digest[:16]}.so"


def _build(path: Path) -> None:
    import torch

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

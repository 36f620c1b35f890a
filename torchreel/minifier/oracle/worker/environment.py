"""The environment that verdicts hold for: another torch, machine or plugin, other verdicts.

Read in the worker, because cases run there. It is part of the key of every verdict.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from torchreel.store.documents.jsontypes import Json

# Raise it when a change of the oracle changes what it says of the same case.
ORACLE_VERSION = 5


_CHANGING = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "ATEN_CPU_")
_OWN = frozenset(
    {
        "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_FX_GRAPH_CACHE",
        "TORCHINDUCTOR_AUTOGRAD_CACHE",
    }
)  # fmt: skip
"""Variables that each worker gets from its parent."""


def facts(imports: Sequence[str], *, confined: bool) -> dict[str, Json]:
    """Collect versions, processor, compiler and the text of the modules that were imported.

    And whether cases are confined: what the sandbox denied says nothing of a trusted run. And what
    the user has set that changes a compile.
    """
    variables: dict[str, Json] = {
        name: text
        for name, text in sorted(os.environ.items())
        if name.startswith(_CHANGING) and name not in _OWN
    }
    return {
        **({"variables": variables} if variables else {}),
        "oracle": ORACLE_VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "compiler": _compiler(),
        "confined": confined,
        "imports": {name: _source_digest(name) for name in imports},
    }


def _compiler() -> str:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        command = [get_cpp_compiler(), "--version"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, RuntimeError, subprocess.TimeoutExpired):
        return "none"
    return found.stdout.partition("\n")[0]


def _source_digest(name: str) -> str:
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None or not Path(path).is_file():
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()

"""Describes the machine, the versions and the environment variables of a recording.

Lives here: an allow-list of variables, and the redaction of their values and of the command line.
Not here: config of torch (it belongs to a checkpoint).  Called once, by the recorder, when its
first compile begins.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence

from torchreel.recorder.redaction import SECRET_NAME
from torchreel.store.processes.liveness import PROCESS, process_identity

ENVIRONMENT = ("os", "environ", "_data")
"""The path of names to the variables of the process, in the globals of a frame."""
_ALLOWED = re.compile(
    r"(TORCH(?!REEL)|PYTORCH|TRITON|OMP_|MKL_|KMP_|GOMP_|OPENBLAS_|NUMEXPR_|ATEN_|DNNL_|ONEDNN_)\w*"
    r"|(CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|CXX|CC|RANK|LOCAL_RANK|WORLD_SIZE)"
    r"|(PYTHONHASHSEED|PYTHONOPTIMIZE|MALLOC_ARENA_MAX)"
)
# Long, without spaces, letters and digits mixed: a key rather than a setting.
_SECRET_VALUE = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])[\w+/=.-]{24,}")

# What 'g++ -v' says besides is how it was built.
_VERSION = r"(gcc|clang|icx) version [^_\n]{1,80}"


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed environment variables, as `env:NAME`, redacted."""
    return {
        f"env:{name}": _redacted(name, value)
        for name, value in environ.items()
        if _ALLOWED.fullmatch(name)
    }


def _redacted(name: str, value: str) -> str:
    if SECRET_NAME.search(name) or _SECRET_VALUE.fullmatch(value):
        return "<redacted>"
    return "<path>" if "/" in value or "\\" in value else value


def arguments(argv: Sequence[str]) -> list[str]:
    """Return the command line without the values of options that name a secret."""
    kept: list[str] = []
    hide = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        secret = argument.startswith("-") and SECRET_NAME.search(name) is not None
        kept.append(
            "<redacted>" if hide else f"{name}=<redacted>" if secret and equals else argument
        )
        hide = secret and not equals
    return kept


_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers pass the rank: torchrun, Open MPI, and those of MPICH's family."""


def rank() -> int | None:
    """Return this process's rank in a distributed job: the process group's, or a launcher's."""
    joined = _rank_in_group()
    return launched_rank() if joined is None else joined


def launched_rank() -> int | None:
    """Return the rank that a launcher gave to this process; known from its start."""
    texts = [os.environ.get(name, "") for name in _RANKS]
    if os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":  # one task may be torchrun's own start
        texts.append(os.environ.get("SLURM_PROCID", ""))
    return next((int(text) for text in texts if text.isdecimal()), None)


def _rank_in_group() -> int | None:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def facts() -> dict[str, str]:
    """Return versions, capabilities and the environment variables of this process."""
    found = {
        "python": platform.python_version(),
        "platform": _platform(),
        "machine": os.uname().machine,
        "cpu_count": str(os.cpu_count()),
        **_torch_facts(),
        **variables(os.environ),
    }
    identity = process_identity()
    return found if identity is None else {**found, PROCESS: identity}


def _platform() -> str:
    """Return the platform in the form of `platform.platform`, on Linux without a child process.

    That function runs `uname -p`, and the program may wait for any child.
    """
    system = os.uname()
    name = f"{system.sysname}-{system.release}-{system.machine}"
    libc = "".join(platform.libc_ver()) if system.sysname == "Linux" else ""
    return f"{name}-with-{libc}" if libc else platform.platform()


def _torch_facts() -> dict[str, str]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "torch": str(torch.__version__),
        "cpu": str(torch.backends.cpu.get_cpu_capability()),
        "num_threads": str(torch.get_num_threads()),
    }


def compiler() -> dict[str, str]:
    """Return the version of the C++ compiler, if Inductor has read it (it caches the answer)."""
    builder = sys.modules.get("torch._inductor.cpp_builder")
    version = getattr(builder, "get_compiler_version_info", None)
    if version is None or not version.cache_info().currsize:
        return {}
    found = re.search(_VERSION, str(version(builder.get_cpp_compiler())))  # type: ignore[union-attr]
    return {"gxx": found[0].strip()} if found is not None else {}

"""The private names of torch by which a compile sees its machine, and how to make it see another.

Lives here: CPUs, vector instructions, seed.  Not here: GPUs (`device`), what was recorded
(`facts`).  Only for the child of a replay: it patches torch, and a process with an imposed machine
computes nothing real.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import errno
import importlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch

from torchreel.replay.imposed.device import answers as device
from torchreel.replay.imposed.facts import Facts

# What picks the vector instructions of the machine in `torch._inductor.cpu_vec_isa`, and modules
# that take it from there as they are imported; the first one imports the others in an order that
# their circles allow.
_PICK = "pick_vec_isa"
_PICKERS = (
    "torch._inductor.compile_fx",
    "torch._inductor.codecache",
    "torch._inductor.codegen.cpp_micro_gemm",
)
_TRY = "_probe_load"
_PRECOMPILE = "_precompile_header"
# Optional extensions: the flag that tells of one, and the attribute that stands for it.
_EXTENSIONS = {
    "-mavx512bf16": "_is_avx512_bf16_supported",
    "-mamx-fp16": "_is_amx_fp16_supported",
}

_MOST_CPUS = 1 << 12
"""The most CPUs that a store may claim: each becomes an entry of the CPU affinity."""


@contextlib.contextmanager
def without_other_programs() -> Iterator[None]:
    """Let Inductor start no program but the C++ compiler: for a confined child.

    It tries out a probe for vector instructions in a Python of its own, since the probe may crash:
    a fork does as well. It has openssl make the name of a precompiled header: without one a kernel
    compiles as it is, more slowly. Before torch 2.13 a probe is taken for one that fails.
    """
    from torch._inductor import codecache
    from torch._inductor.cpu_vec_isa import VecISA

    with ExitStack() as stack:
        for owner, name, instead in (
            (VecISA, _TRY, _loads),
            (codecache, _PRECOMPILE, _if_known(getattr(codecache, _PRECOMPILE, None))),
            (subprocess.Popen, _START, _start),
        ):
            if hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, instead)
        yield


def _start(self: Any, *args: Any, **kwargs: Any) -> None:
    """Start a program; one that may not be started is as one that is not installed.

    Inductor goes on without it then. What ends in an error has the denial as its cause.
    """
    try:
        _start_child(self, *args, **kwargs)
    except PermissionError as error:
        raise FileNotFoundError(errno.ENOENT, "not to be started here", error.filename) from error


_START = "_execute_child"
_start_child = getattr(subprocess.Popen, _START)


def _if_known(original: Any) -> Any:
    """Return the header that this process, or the one that it was forked from, had precompiled."""

    def precompile_header(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except OSError:
            return None

    return precompile_header


def _loads(isa: object, path: str) -> bool:
    """Return True if a library can be loaded, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(path)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@contextlib.contextmanager
def imposed(facts: Facts, *, run: bool = False) -> Iterator[list[str]]:
    """Let a compile see the recorded machine; yields what could not be imposed, with the reason.

    `run`: the compiled code will be run here, which takes the instructions themselves.
    """
    left: list[str] = []
    with ExitStack() as stack:
        if facts.cpus is not None:
            _replace(stack, os, "cpu_count", facts.cpus)
        if facts.usable_cpus is not None and hasattr(os, "sched_getaffinity"):
            usable = min(max(facts.usable_cpus, 1), _MOST_CPUS)
            _replace(stack, os, "sched_getaffinity", frozenset(range(usable)))
        if facts.seed is not None:
            torch.manual_seed(facts.seed)
        if facts.vector_isa is not None:
            _impose_isa(stack, facts, left, run)
        if facts.accelerator is not None:
            device.impose(stack, facts.accelerator, left, run=run)
        yield left


def _impose_isa(stack: ExitStack, facts: Facts, left: list[str], run: bool) -> None:
    isa = _isa(str(facts.vector_isa), facts.vector_flags)
    what = f"the vector instructions {facts.vector_isa!r:.60}"
    if isa is None:
        left.append(f"{what}: this torch does not know them, so it picked those of this machine")
        return
    if isa.build_arch_flags() != facts.vector_flags:
        left.append(f"{what} with the flags {facts.vector_flags!r:.120}: it has other flags here")
    if run and not _has(isa):
        left.append(f"{what}: this machine lacks them, so that the compiled code cannot run here")
    from torch._inductor import cpu_vec_isa

    _replace(stack, cpu_vec_isa, _PICK, isa)
    for module in map(importlib.import_module, _PICKERS):
        if hasattr(module, _PICK):
            # By way of the first one, which the recorder watches: all calls are in its event log.
            _put(stack, module, _PICK, lambda: getattr(cpu_vec_isa, _PICK)())


def _replace(stack: ExitStack, module: ModuleType, name: str, answer: object) -> None:
    """Let a function of a module give one answer, as long as the stack is open."""
    _put(stack, module, name, lambda *_: answer)


def _put(stack: ExitStack, module: ModuleType, name: str, function: Callable[..., object]) -> None:
    stack.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, function)


def _isa(name: str, flags: str) -> Any:
    """Return Inductor's object for vector instructions of that name, which says that they are
    here.
    """
    from torch._inductor import cpu_vec_isa

    if name == str(cpu_vec_isa.invalid_vec_isa):
        return cpu_vec_isa.invalid_vec_isa
    for known in cpu_vec_isa.supported_vec_isa_list:
        if str(known) == name:
            cls = type(known)
            # Asked for its truth, the original tries the C++ compiler and the machine.
            members = {"__bool__": lambda self: True, "__hash__": cls.__hash__}
            isa = copy.copy(known)
            isa.__class__ = type(cls.__name__, (cls,), members)
            for flag, attribute in _EXTENSIONS.items():
                if hasattr(isa, attribute):
                    setattr(isa, attribute, flag in flags.split())
            return isa
    return None


def _has(isa: object) -> bool:
    """Return True if this machine has all the instructions of a set."""
    from torch._inductor import cpu_vec_isa

    known = set(cpu_vec_isa.x86_isa_checker())
    return isa is cpu_vec_isa.invalid_vec_isa or set(str(isa).split()) <= known

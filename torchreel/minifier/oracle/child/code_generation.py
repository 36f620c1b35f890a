"""Inductor in a worker: the code and the kernels that it makes, and how far its compiler goes.

Called in the worker's processes alone.  To support another torch, this file changes.  Nothing here
decides anything.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Literal

import torch
import torch._inductor.codecache as codecache
import torch._inductor.config
import torch._inductor.cpp_builder as cpp_builder
import torch._inductor.metrics
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.graph import GraphLowering

from torchreel.torch_compat.patching import patched


def warm_up() -> None:
    """Detect the vector instructions now, as the first compile would, by the C++ compiler."""
    pick_vec_isa()
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.monitor_interval = 0  # a thread, which would not survive a fork


def kernels_kept() -> Any:
    """Return a context in which compiled kernels are found again by the digest of their source.

    Replay switches every cache off; but a kernel is the same whoever asks for it, and making it is
    most of the time of a run. Nothing else is cached.
    """
    return torch._inductor.config.patch(force_disable_caches=False)


def eager_random_numbers() -> Any:
    """Return a context in which compiled code draws the same random numbers as eager."""
    return torch._inductor.config.patch(fallback_random=True)


def code_kept(sources: list[str]) -> Any:
    """Return a context in which each source that Inductor generates is added to `sources`."""
    return patched(GraphLowering, "save_output_code", sources.append)


def kernel_count() -> int:
    """Return the number of kernels that Inductor has generated in this process."""
    return torch._inductor.metrics.generated_kernel_count


Effort = Literal["full", "syntax", "none"]
"""The effort of the C++ compiler: make code, only look for errors, do nothing."""


@contextlib.contextmanager
def compiler_watched(effort: Callable[[], Effort]) -> Iterator[None]:
    """Limit each run of the C++ compiler to the effort that `effort` returns for it.

    An error about the source comes long before optimisation: -fsyntax-only finds the same ones.
    The result is a stub that can't run: a case that is to be run needs full effort.
    """
    compile_command, load = cpp_builder.run_compile_cmd, codecache.CppCodeCache._load_library
    load_binding = codecache.CppPythonBindingsCodeCache._load_library

    def run_compile_cmd(cmd_line: str, cwd: str) -> None:
        how = effort() if _makes_code(cmd_line) else "full"
        if how != "none":
            compile_command(_syntax_only(cmd_line) if how == "syntax" else cmd_line, cwd)

    def loader(original: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
        return lambda path, key: original(path, key) if effort() == "full" else _nothing(key)

    with (
        patched(cpp_builder, "run_compile_cmd", run_compile_cmd),
        patched(codecache.CppCodeCache, "_load_library", loader(load)),
        patched(codecache.CppPythonBindingsCodeCache, "_load_library", loader(load_binding)),
    ):
        yield


def _makes_code(command: str) -> bool:
    """Return True if a command compiles a kernel (the others prepare its headers, once)."""
    words = command.split()
    return "-o" in words and words[words.index("-o") + 1].endswith((".so", ".o"))


def _syntax_only(command: str) -> str:
    """Return the same without making code.

    Other flags stay, or precompiled headers would not fit.
    """
    compiler, _, rest = command.partition(" ")
    return f"{compiler} -fsyntax-only {rest}"


def _nothing(key: str) -> ModuleType:
    """Return a stub for a library that was not made."""
    stub = ModuleType(f"torchreel_stub_{key}")
    setattr(stub, codecache.CppPythonBindingsCodeCache.entry_function, None)
    return stub

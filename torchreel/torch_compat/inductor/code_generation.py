"""Inductor: its entry points, and the modes in which it writes constants into code."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchreel.torch_compat.patching import patched


def is_aot_compilation() -> bool:
    """Return True if Inductor compiles for AOTInductor: into a library, with the weights in it."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    return virtualized is not None and bool(virtualized.V.aot_compilation)


def may_be_written_into_code(constant: torch.Tensor) -> bool:
    """Return True if Inductor writes the values of a small constant of this kind into its
    output code.

    A weight is one only where freezing makes constants of weights; AOTInductor keeps all apart.
    """
    weight = isinstance(constant, torch.nn.Parameter)
    return (is_freezing() or not weight) and not is_aot_compilation()


def is_freezing() -> bool:
    """Return True if Inductor makes constants of weights."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.freezing)


def probe_vector_isa() -> None:
    """Have Inductor find out which vector instructions there are, and keep that in its cache."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    valid_vec_isa_list()


def compile_fx(
    *, decompositions: Mapping[Any, Any] | None, ignore_shape_env: bool
) -> Callable[..., Any]:
    """Return Inductor's entry for a graph that a backend compiles apart."""
    from torch._inductor import compile_fx as inductor

    given: dict[str, Any] = {"ignore_shape_env": True} if ignore_shape_env else {}
    if decompositions is not None:
        given["decompositions"] = decompositions
    return functools.partial(inductor.compile_fx, **given)


def compile_fx_inner(
    graph: GraphModule, inputs: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Return Inductor's entry for one ATen graph, with the recorded keyword arguments."""
    from torch._inductor.compile_fx import compile_fx_inner as inner
    from torch._inductor.cudagraph_utils import BoxedDeviceIndex
    from torch._inductor.utils import BoxedBool

    live: dict[str, Any] = dict(kwargs)
    if live.get("cudagraphs") is not None:
        live["cudagraphs"] = BoxedBool(bool(live["cudagraphs"]))
    if "boxed_forward_device_index" in live:
        live["boxed_forward_device_index"] = BoxedDeviceIndex(live["boxed_forward_device_index"])
    return inner(graph, inputs, **live)  # type: ignore[arg-type]


@contextlib.contextmanager
def without_cpp_compiler() -> Iterator[None]:
    """Generate kernels but compile none: the generated module loads, its kernels can't be called.

    What is compared is the source; a compiler run would decide nothing and take most of the time,
    and Triton's would load the kernel into a GPU.
    """

    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppWrapperCodeCache

    def function(*args: object, **kwargs: object) -> object:
        return _not_compiled

    def library(*args: object, **kwargs: object) -> object:
        return _NotCompiled()

    with (
        patched(AsyncCompile, "cpp_pybinding", function),
        patched(AsyncCompile, "cpp", library),
        patched(AsyncCompile, "triton", library),
        patched(CppWrapperCodeCache, "load_pybinding", function),
    ):
        yield


def _not_compiled(*args: object) -> None:
    raise RuntimeError("this kernel was generated for comparison and never compiled")


class _NotCompiled:
    """Stands for a library of kernels."""

    kernel = run = staticmethod(_not_compiled)


def forget_devices() -> None:
    """Drop what torch keeps of the devices that it found: whether Triton works, say."""
    from torch._inductor import utils
    from torch.utils import _triton

    for module in (_triton, utils):
        for found in list(vars(module).values()):
            forget = getattr(found, "cache_clear", None)
            if forget is not None and getattr(found, "__module__", None) == module.__name__:
                forget()

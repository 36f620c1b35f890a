"""Compiled autograd: nodes, captures, and the prologues of backwards."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from torchreel.errors import UnsupportedError


def is_compiled_autograd() -> bool:
    """Return True while a capture of compiled autograd is compiled: AOTAutograd acts otherwise."""
    found = sys.modules.get("torch._dynamo.compiled_autograd")
    return found is not None and bool(found.in_compiled_autograd_region)


@contextlib.contextmanager
def compiled_autograd(active: bool) -> Iterator[None]:
    """Have graphs count as captured by compiled autograd (`active`), or not."""
    if active == is_compiled_autograd():
        yield
        return
    module = _compiled_autograd()
    before, module.in_compiled_autograd_region = module.in_compiled_autograd_region, active
    try:
        yield
    finally:
        module.in_compiled_autograd_region = before


def autograd_node_name(function: object) -> str:
    """Return the name of the autograd node whose backward compiled autograd calls as this function.

    "" for anything else.
    """
    if type(function).__name__ != "Op":  # before torch's module is imported for it
        return ""
    cls, ops = getattr(_compiled_autograd(), "Op", None), _autograd_nodes()
    if cls is None or type(function) is not cls or function.is_custom_function:  # type: ignore[attr-defined]
        return ""
    name = str(function.__name__)  # type: ignore[attr-defined]
    return name if getattr(ops, name, None) is function else ""


def autograd_node_function(name: str) -> Callable[..., object] | None:
    """Return the backward of a node as a function, where compiled autograd has captured such a
    node.
    """
    found = getattr(_autograd_nodes(), name, None)
    return found if autograd_node_name(found) == name else None


def _autograd_nodes() -> object | None:
    """Return compiled autograd's namespace of bound functions; None in a torch without one."""
    return getattr(_compiled_autograd(), "ops", None)


def _compiled_autograd() -> Any:
    from torch._dynamo import compiled_autograd

    return compiled_autograd


def ones(*, requires_grad: bool = False) -> torch.Tensor:
    """Return a small tensor that no mode sees; one with a gradient is no leaf, so it may be written
    to.
    """
    with _disable_current_modes(), torch.enable_grad():
        made = torch.ones(2, 2, dtype=torch.float32, device="cpu", requires_grad=requires_grad)
        return made.clone() if requires_grad else made


class _WithoutKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers every operator below autograd with tensors of ones."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        found = [self._answer(returned, func, args) for returned in func._schema.returns]
        return found[0] if len(found) == 1 else tuple(found) or None

    def _answer(self, returned: Any, func: Any, args: Sequence[object]) -> object:
        alias = returned.alias_info
        for argument, value in zip(func._schema.arguments, args, strict=False):
            # What is written to comes back.
            written = argument.alias_info if alias is not None and alias.is_write else None
            if written is not None and written.before_set == alias.before_set:
                return value
        kind = str(returned.type)
        if kind == "Tensor":
            return ones()
        return [ones(), ones()] if kind.startswith("List[") else {"float": 1.0}.get(kind, 1)


class _Captured(Exception):
    """Ends a capture, so that nothing is compiled."""


def capture_backward(operator: Any, args: Sequence[object], kwargs: Mapping[str, Any]) -> None:
    """Let compiled autograd capture the backward of one operator, and compile nothing.

    The counters of the process stay as they were.  Raises the exceptions of the operator.
    """
    from torch._dynamo.utils import counters

    def end(graph: object) -> None:
        raise _Captured

    autograd, nodes = _compiled_autograd(), torch._C._dynamo.compiled_autograd
    count, counted = autograd.COMPILE_COUNTER, dict(counters["compiled_autograd"])
    autograd.COMPILE_COUNTER = itertools.count()
    try:
        with _disable_current_modes(), torch.enable_grad(), torch._C.DisableTorchFunction():
            with _WithoutKernels():  # type: ignore[no-untyped-call]
                result = operator(*args, **kwargs)
            for tensor in pytree.tree_leaves(result):
                if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                    compiler = functools.partial(autograd.AutogradCompilerInstance, end)
                    before = nodes.set_autograd_compiler(compiler, True)
                    try:
                        with torch.autograd.set_multithreading_enabled(False):
                            tensor.backward(ones())  # type: ignore[no-untyped-call]
                    except _Captured:
                        pass
                    finally:
                        nodes.set_autograd_compiler(*before)
    finally:
        autograd.COMPILE_COUNTER = count
        counters["compiled_autograd"].clear()
        counters["compiled_autograd"].update(counted)


# Flags in the text: two joined with `|` stay a member of `re.RegexFlag`, and a program that joins
# the same two would then run other frames than without the recorder.
_STRUCT = re.compile(r"(?ms)^struct (?:TORCH_API )?(\w+) : public[^{]*\{(.*?)^\};")
_SAVED = re.compile(r"^  ([\w:<> ,]+?) (\w+)(?: = [^;]+)?;$", re.MULTILINE)
_NOT_SAVED = ("using", "bool retain_variables", "std::mutex")


def saved_types(name: str) -> tuple[str, ...] | None:
    """Return the C++ types of what a node of torch's own saves, in the order of its backward's
    arguments; None where that can't be told.

    They stand in `torch/csrc/autograd/generated/Functions.h`, which each wheel has; sizes of lists
    come first.  Nodes that torch has written by hand save a dtype as a part of `TensorOptions`.
    """
    known = _saved_types()
    return known.get(name, ()) if known else None


@functools.cache
def _saved_types() -> Mapping[str, tuple[str, ...]]:
    header = Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h"
    if not header.exists():
        return {}
    found = {}
    # Each struct begins twice, once as on Windows.
    text = re.sub(r"#ifdef _WIN32.*?#else\n|#endif\n", "", header.read_text(), flags=re.DOTALL)
    for name, body in _STRUCT.findall(text):
        fields = [kind for kind, field in _SAVED.findall(body) if not field.endswith("_released_")]
        kinds = [kind for kind in fields if not kind.startswith(_NOT_SAVED)]
        found[name] = tuple(sorted(kinds, key=lambda kind: kind != "size_t"))
    return found


_PROLOGUE = "AutogradCompilerInstance.proxy_call_aot_backward.<locals>.call_aot_bwd_prologue"


def prologue_metadata(function: object) -> Any:
    """Return AOTAutograd's metadata of the function whose backward has this prologue.

    None for any other function, for one that is gone, and for one of tensor subclasses.
    """
    if getattr(function, "__qualname__", "") != _PROLOGUE:
        return None
    own = inspect.getclosurevars(function).nonlocals.get("bw_prologue_fn")  # type: ignore[arg-type]
    for compiled in torch.autograd.Function.__subclasses__():
        if own is not None and vars(compiled).get("_bw_prologue_fn") is own:
            return None if compiled.maybe_subclass_metadata is not None else compiled.metadata  # type: ignore[attr-defined]
    return None


def has_tangent(info: Any) -> bool:
    """Return True if the backward takes the gradient of an output."""
    from torch._functorch._aot_autograd.schemas import OutputType

    own = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
    is_tensor = issubclass(info.raw_type, torch.Tensor)
    return info.output_type in own and is_tensor and bool(info.requires_grad_for_backward)


def output_with_tangent(kept: bool) -> object:
    """Return an output for which `has_tangent` returns `kept`."""
    from torch._functorch._aot_autograd.schemas import OutputType

    return SimpleNamespace(
        output_type=OutputType.non_alias, raw_type=torch.Tensor, requires_grad_for_backward=kept
    )


def memory_format_of_tangent(**facts: Any) -> object:
    """Return the memory format that a backward was compiled for."""
    from torch._functorch._aot_autograd.schemas import MemoryFormatMeta

    return MemoryFormatMeta(**facts)


def prologue(metadata: object) -> Callable[..., object]:
    """Return the prologue of a backward, named as compiled autograd names it.

    Raises `UnsupportedError` in a torch that writes none.
    """
    from torch._functorch._aot_autograd import runtime_wrappers

    write = getattr(runtime_wrappers, "_codegen_backward_prologue", None)
    if write is None:
        raise UnsupportedError("this torch writes no prologues of backwards")
    own = write(metadata, None, None)

    def call_aot_bwd_prologue(*args: object) -> object:
        return own(*args)

    call_aot_bwd_prologue.__module__ = "torch._dynamo.compiled_autograd"
    call_aot_bwd_prologue.__qualname__ = _PROLOGUE
    return call_aot_bwd_prologue

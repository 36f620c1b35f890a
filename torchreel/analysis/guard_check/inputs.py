"""Inputs as people describe them: `x: f32[4, 17] cuda:0`, `n: 5`.

Lives here: the grammar, and the facts of a described tensor.  Not here: which guards it passes
(`check`).  What a description leaves out is the ordinary: strides of a contiguous tensor, the
CPU, no gradient, a plain `torch.Tensor` that nothing is marked on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchreel.errors import UsageError

Inputs = Mapping[str, object]
"""By the expression that guards name it by (`L['x']`): a `Described` tensor, or a value."""

# As torch.fx abbreviates them (torch/utils/_dtype_abbrs.py), and by their own names.
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
    "c32": "complex32", "c64": "complex64", "c128": "complex128",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "b8": "bool",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<size>[\d,\s]*)\](?P<words>.*)", re.DOTALL)
_STRIDES = re.compile(r"strides? \[(?P<stride>[\d,\s]*)\]")
_DEVICE = re.compile(r"(cpu|cuda|xpu|mps|meta)(:\d{1,4})?")


@dataclass(frozen=True)
class Described:
    """A tensor, as far as guards look at it."""

    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"
    index: int | None = None
    requires_grad: bool = False
    parameter: bool = False

    @property
    def type_name(self) -> str:
        """The class, as the event log names it."""
        return "torch.nn.parameter.Parameter" if self.parameter else "torch.Tensor"


def parse_inputs(described: Iterable[str]) -> dict[str, object]:
    """Return inputs by their expressions; raises `UsageError` for a text that describes none."""
    return dict(map(parse_input, described))


def parse_input(text: str) -> tuple[str, object]:
    """Return one input: `NAME: DTYPE[SIZES] [DEVICE] [strides [...]] [requires_grad] [parameter]`,
    or `NAME: VALUE`.  The name is an argument's, or an expression as `torchreel guards` prints it.
    """
    name, colon, what = text.partition(":")
    if not colon or not name.strip() or not what.strip():
        raise UsageError(
            f"{text!r:.80} describes no input: write a name, a colon and what it is, as in "
            "'x: f32[4, 17]' or 'n: 5'."
        )
    return canonical(name.strip()), _described(what.strip())


def canonical(name: str) -> str:
    """Return the expression that a name means: `x` is `L['x']`."""
    if name.isidentifier():
        return f"L[{name!r}]"
    try:
        return ast.unparse(ast.parse(name, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            f"{name!r:.80} names no input: write an argument's name, or an expression as "
            "'torchreel guards' prints it."
        ) from None


def _described(what: str) -> object:
    match = _TENSOR.fullmatch(what)
    if match is not None and _dtype(match["dtype"]) is not None:
        return _tensor(match, what)
    try:
        return ast.literal_eval(what)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            f"{what!r:.80} is neither a tensor (as in f32[4, 17]) nor a value (5, 2.5, True, "
            "'text', None, [1, 2])."
        ) from None


def _dtype(name: str) -> str | None:
    return _DTYPES.get(name, name if name in _DTYPES.values() else None)


def abbreviated(dtype: str) -> str:
    """Return the short name of a dtype: `f32` for `torch.float32`."""
    plain = dtype.removeprefix("torch.")
    return next((short for short, name in _DTYPES.items() if name == plain), plain)


def _tensor(match: re.Match[str], what: str) -> Described:
    size = _numbers(match["size"])
    words = match["words"]
    strides = _STRIDES.search(words)
    stride = _numbers(strides["stride"]) if strides else contiguous(size)
    if len(stride) != len(size):
        raise UsageError(f"{what!r:.80} has {len(size)} sizes and {len(stride)} strides.")
    rest = _STRIDES.sub("", words).split()
    flags = [word for word in rest if word in ("requires_grad", "parameter")]
    devices = [word for word in rest if word not in flags]
    if len(devices) > 1 or not all(_DEVICE.fullmatch(word) for word in devices):
        raise UsageError(
            f"{what!r:.80} has words that say nothing of a tensor: what may follow the sizes is a "
            "device, 'strides [...]', 'requires_grad' and 'parameter'."
        )
    device, _, index = (devices or ["cpu"])[0].partition(":")
    return Described(
        str(_dtype(match["dtype"])), size, stride, device,
        int(index) if index else None if device == "cpu" else 0,
        "requires_grad" in flags or "parameter" in flags, "parameter" in flags,
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, ...]:
    # More digits are no size, and Python refuses to convert thousands of them.
    return tuple(int(part[:20]) for part in text.replace(",", " ").split())


def contiguous(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, as torch computes them."""
    strides: list[int] = []
    step = 1
    for length in reversed(size):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))

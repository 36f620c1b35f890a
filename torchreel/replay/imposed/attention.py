"""The kernels that scaled dot-product attention was given to on a device, as its event log tells.

torch chooses by rules that read the device's properties, in C++ that a build for the CPU lacks.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import list_only

PREFIX = "aten._scaled_dot_product_"
SCALED = "aten.mul.Scalar"
DEFINITION = f"{PREFIX}attention_math"
_BACKENDS = {
    "attention_math": 0,
    "flash_attention": 1,
    "efficient_attention": 2,
    "cudnn_attention": 3,
    "fused_attention_overrideable": 4,
}
"""Numbers of `torch.nn.attention.SDPBackend`, by the operator that computes it."""
_TYPES = {"float16": 5, "float32": 6, "float64": 7, "bfloat16": 15}
"""Numbers of `c10::ScalarType`."""
_SYMBOL = -1
_MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class Attention:
    """The kernel for queries of some sizes and dtype."""

    sizes: tuple[int, ...]
    """All but the last; -1 for a symbol."""
    width: int
    """The last size of the result; the kernels pad it to a multiple of 8."""
    dtype: int
    backend: int

    def row(self) -> list[int]:
        """Return it as `stand_in.cpp` reads it."""
        sizes = [*self.sizes, 0, 0, 0][: _MOST_DIMENSIONS - 1]
        return [len(self.sizes) + 1, *sizes, self.width, self.dtype, self.backend]


def attention_of(name: str, result: Json) -> Attention | None:
    """Return what the dispatch of an operator to fake tensors tells; None if it tells nothing.

    `name` is as in 'aten._scaled_dot_product_flash_attention.default', `result` the description of
    what it returned.
    """
    backend = _BACKENDS.get(name.removeprefix(PREFIX).split(".")[0])
    first = result[0] if isinstance(result, Sequence) and result else None
    if backend is None or not isinstance(first, Sequence) or len(first) < 2:
        return None
    dtype, sizes = _TYPES.get(str(first[0])), first[1]
    if dtype is None or not isinstance(sizes, Sequence) or isinstance(sizes, str):
        return None
    if not 2 <= len(sizes) <= _MOST_DIMENSIONS:
        return None
    *outer, width = (size if isinstance(size, int) else _SYMBOL for size in sizes)
    padded = width if width == _SYMBOL else (width + 7) // 8 * 8
    return Attention(tuple(outer), padded, dtype, backend)


def attentions(rows: Json) -> list[Attention]:
    """Return the choices that [operator, result] rows tell, in their order.

    Where attention is computed by its definition, the query and the transposed key are scaled first
    (`_scaled_dot_product_attention_math`).
    """
    found = []
    listed: list[Json] = list_only(rows)
    pairs = [(str(row[0]), row[1]) for row in listed if isinstance(row, list) and len(row) == 2]
    for number, (name, result) in enumerate(pairs):
        scaled = name == SCALED and _scales_key(result, pairs[number + 1 : number + 2])
        one = attention_of(DEFINITION, [result]) if scaled else attention_of(name, result)
        if one is not None:
            found.append(one)
    return found


def _scales_key(query: Json, after: Sequence[tuple[str, Json]]) -> bool:
    """Return True if the next row scales a key for a query."""
    if not after or after[0][0] != SCALED:
        return False
    mine, other = _sizes(query), _sizes(after[0][1])
    return len(mine) == len(other) >= 3 and mine[:-2] == other[:-2] and mine[-1] == other[-2]


def _sizes(described: Json) -> list[Json]:
    found = described[1] if isinstance(described, list) and len(described) > 1 else None
    return list_only(found)

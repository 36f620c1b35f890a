"""Namespaces of operators: torch's own, and those of programs and libraries.

Lives here: the names, so that a process without torch can tell the two apart.  Not here: what an
operator's name resolves to (`targets`).
"""

from __future__ import annotations

TORCHS = frozenset({
    "aten", "prims", "prim", "inductor", "quantized", "_quantized", "quantized_decomposed",
    "mkldnn", "mkl", "onednn", "rngprims", "_c10d_functional", "_c10d_functional_autograd",
    "c10d_functional", "_dtensor", "device_mesh", "streams", "bucketing", "fsdp",
})  # fmt: skip
"""The namespaces that torch itself registers, whose operators only compute."""


def is_custom(target: str) -> bool:
    """Return True if a target is an operator of a namespace that torch itself does not register."""
    kind, _, name = target.partition(":")
    return kind in ("op", "packet") and name.partition(".")[0] not in TORCHS

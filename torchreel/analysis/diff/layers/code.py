"""The generated source of two compiles.

Lives here: which source of one stands for which of the other, and the lines that differ.  Not here:
what may be spelled differently (`torchreel.replay.compare.normalise`).
"""

from __future__ import annotations

import re

from torchreel.analysis.diff.report import (
    ABSENT,
    DiffSide,
    LayerDiff,
    LayerDifference,
    modes_differ,
)
from torchreel.analysis.diff.text import text_difference
from torchreel.replay.compare.normalise import canonical_code
from torchreel.store import queries

Key = tuple[str, int]
"""A partition, and the number of a source in it."""

# Torch numbers the graphs of a process: the same code has another number after other compiles.
_AOT_ID = re.compile(r"^(# AOT ID: \[')\d+", re.MULTILINE)


def code(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return sources that differ, by partition and in order."""
    if modes_differ(left, right):
        return LayerDiff("code", 0, 0, note="flight mode keeps no output code")
    ours, theirs = sources(left), sources(right)
    found = tuple(
        _difference(key, ours.get(key), theirs.get(key))
        for key in dict.fromkeys([*ours, *theirs])
        if ours.get(key) != theirs.get(key)
    )
    return LayerDiff("code", len(ours), len(theirs), found)


def sources(side: DiffSide) -> dict[Key, str]:
    """Return the generated sources of a compile in canonical form, by partition and number."""
    found: dict[Key, str] = {}
    for row in queries.output_codes(side.store, side.compile):
        text = side.store.read_blob(row.digest).decode("utf-8", "surrogatepass")
        number = sum(partition == row.partition for partition, _ in found)
        found[row.partition, number] = _AOT_ID.sub(r"\1N", canonical_code(text))
    return found


def _difference(key: Key, left: str | None, right: str | None) -> LayerDifference:
    what = f"{key[0]} {key[1] or ''}".strip() or "source"
    if left is None or right is None:
        return LayerDifference(what, _length(left), _length(right))
    return text_difference(what, left, right)


def _length(text: str | None) -> str:
    return ABSENT if text is None else f"{len(text.splitlines())} lines"

"""Graphs and generated code of two compiles, side by side.

Lives here: the lines that differ with those around them, in bounds.  Not here: which nodes stand
for which (`torchreel.analysis.diff.layers.graphs`), nor how code is spelled canonically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchreel.analysis.diff.alignment import align
from torchreel.analysis.diff.layers import code
from torchreel.analysis.diff.layers.graphs import node_pairs
from torchreel.analysis.diff.layers.stage_graphs import paired_graphs
from torchreel.analysis.diff.report import DiffSide, modes_differ
from torchreel.report.comparison.document import ComparedText, TextRow

_AROUND = 3
"""Lines that are alike, before and after those that differ."""
_MOST_ROWS = 1_500
"""Rows of one text."""
_LONGEST = 2_000
"""Characters of a line."""


def compared_texts(left: DiffSide, right: DiffSide) -> Iterator[ComparedText]:
    """Yield the graphs and the sources that both have and that differ."""
    yield from _graphs(left, right)
    yield from _sources(left, right)


def _graphs(left: DiffSide, right: DiffSide) -> Iterator[ComparedText]:
    for name, (one, other) in paired_graphs(left, right).items():
        if one is not None and other is not None and one.digest != other.digest:
            pairs = node_pairs(one.read(), other.read())
            rows = [TextRow(_cut(p.left), _cut(p.right), p.same) for p in pairs]
            yield from _text(f"graph {name}", rows)


def _sources(left: DiffSide, right: DiffSide) -> Iterator[ComparedText]:
    if modes_differ(left, right):
        return
    ours, theirs = code.sources(left), code.sources(right)
    for key in ours:
        if key in theirs and ours[key] != theirs[key]:
            name = " ".join(filter(None, ("code", key[0], str(key[1] or ""))))
            yield from _text(name, _lines(ours[key].splitlines(), theirs[key].splitlines()))


def _lines(left: Sequence[str], right: Sequence[str]) -> list[TextRow]:
    rows = []
    for i, j in align(left, right):
        one, other = None if i is None else left[i], None if j is None else right[j]
        rows.append(TextRow(_cut(one), _cut(other), one == other))
    return rows


def _cut(line: str | None) -> str | None:
    return line if line is None or len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _text(name: str, rows: Sequence[TextRow]) -> Iterator[ComparedText]:
    differing = sum(not row.same for row in rows)
    if differing:
        kept = list(_near(rows))
        left_out = len(kept) - _MOST_ROWS
        if left_out > 0:
            kept = [*kept[:_MOST_ROWS], TextRow(skipped=left_out)]
        yield ComparedText(name, kept, differing)


def _near(rows: Sequence[TextRow]) -> Iterator[TextRow]:
    """Yield the rows that differ with those around them, and how many lie between."""
    wanted = {
        near
        for at, row in enumerate(rows)
        if not row.same
        for near in range(at - _AROUND, at + _AROUND + 1)
    }
    skipped = 0
    for at, row in enumerate(rows):
        if at not in wanted:
            skipped += 1
            continue
        if skipped:
            yield TextRow(skipped=skipped)
            skipped = 0
        yield row
    if skipped:
        yield TextRow(skipped=skipped)

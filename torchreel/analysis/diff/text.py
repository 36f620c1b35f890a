"""Two texts, line by line: source and generated code.

Lives here: values as text, the first lines that differ, and cuts of long texts that show it.  Not
here: what may be spelled differently (`normalise`).
"""

from __future__ import annotations

import json

from torchreel.analysis.diff.alignment import align
from torchreel.analysis.diff.report import LayerDifference
from torchreel.replay.compare.unified import parting
from torchreel.store.documents.jsontypes import Json

_SHOWN = 6  # lines of one difference
_BEFORE = 3


def plain(value: Json) -> str:
    """Return a value as one would write it: a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def text_difference(what: str, left: str, right: str) -> LayerDifference:
    """Return the first lines in which two texts differ, with those before them."""
    ours, theirs = left.splitlines(), right.splitlines()
    rows = list(align(ours, theirs))
    place = next((n for n, (i, j) in enumerate(rows) if not _same(ours, theirs, i, j)), len(rows))
    until = next((n for n in range(place, len(rows)) if _same(ours, theirs, *rows[n])), len(rows))
    parted = rows[place : min(until, place + _SHOWN)]
    before = [ours[i] for i, _ in rows[max(0, place - _BEFORE) : place] if i is not None]
    line = next((i for i, _ in rows[place:] if i is not None), len(ours))
    return LayerDifference(
        f"{what}, line {line + 1}",
        "\n".join(ours[i] for i, _ in parted if i is not None),
        "\n".join(theirs[j] for _, j in parted if j is not None),
        before=tuple(before),
    )


def _same(left: list[str], right: list[str], i: int | None, j: int | None) -> bool:
    return i is not None and j is not None and left[i] == right[j]


def parting_lines(left: str, right: str, width: int) -> tuple[str, str]:
    """Return two texts, with long lines in the same place cut so that both show what differs."""
    ours, theirs = left.split("\n"), right.split("\n")
    pairs = [parting(one, other, width) for one, other in zip(ours, theirs, strict=False)]
    return (
        "\n".join([one for one, _ in pairs] + ours[len(pairs) :]),
        "\n".join([other for _, other in pairs] + theirs[len(pairs) :]),
    )


def parting_texts(left: str, right: str, width: int) -> tuple[str, str]:
    """Return two texts of at most `width` characters, cut so that both show where they part."""
    return parting(left, right, width)

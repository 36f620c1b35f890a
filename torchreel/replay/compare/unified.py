"""Shows two texts as a unified diff, with long lines cut to the place in which they part.

Lives here: how many lines are shown, and which part of a long one.  Not here: what is compared
(`events`, `compiles`), the sides of `torchreel diff` (`torchreel.analysis.diff.text`).
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence

_LINES = 60
_WIDTH = 400  # characters of a line
_BEFORE = 100  # of them, before the first that differs


def unified(recorded: Sequence[str], replayed: Sequence[str], *, context: int) -> str:
    """Return both as a unified diff of at most 60 lines, with `context` lines around each hunk."""
    lines = difflib.unified_diff(recorded, replayed, "recorded", "replayed", lineterm="", n=context)
    return "\n".join(itertools.islice(_cut(list(lines)), _LINES))


def parting(one: str, other: str, width: int = _WIDTH) -> tuple[str, str]:
    """Return two lines of at most `width` characters, cut so that both show where they part."""
    if max(len(one), len(other)) <= width:
        return one, other
    pairs = zip(one, other, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, same - min(_BEFORE, width // 2))
    return _window(one, start, width), _window(other, start, width)


def _window(line: str, start: int, width: int) -> str:
    shown = f"…{line[start + 1 :]}" if start else line
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def _cut(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a diff; a removed line is cut with the added one in its place."""
    for sign, group in itertools.groupby(lines, lambda line: line[:1] in "-+"):
        together = list(group)
        if not sign:
            yield from (line[:_WIDTH] for line in together)
            continue
        removed = [line for line in together if line[0] == "-"]
        added = [line for line in together if line[0] == "+"]
        pairs = [
            parting(ours[1:], theirs[1:])
            for ours, theirs in itertools.zip_longest(removed, added, fillvalue="")
        ]
        yield from (f"-{ours}" for ours, _ in pairs[: len(removed)])
        yield from (f"+{theirs}" for _, theirs in pairs[: len(added)])

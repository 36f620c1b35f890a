"""Durations of compiles: the time that torch compiled, not the time between its parts.

A backward compiles when the program calls it, often long after the forward.  What the program did
between them is no part of the compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchreel.store.records import Compile, Stage


def compile_ns(compile: Compile, stages: Sequence[Stage]) -> int | None:
    """Return the nanoseconds that a compile took; None if it has not ended.

    The time between two of its stages is left out. Guards are a stage, so the only long gaps are
    before a backward and before the first run.
    """
    if compile.ended_ns is None:
        return None
    total = compile.ended_ns - compile.started_ns
    return max(0, total - sum(_gaps((stage.started_ns, stage.ended_ns) for stage in stages)))


def _gaps(spans: Iterable[tuple[int, int | None]]) -> Iterable[int]:
    """Yield the lengths of what lies between spans, of which some overlap."""
    until: int | None = None
    for began, ended in sorted((began, began if end is None else end) for began, end in spans):
        if until is not None and began > until:
            yield began - until
        until = ended if until is None else max(until, ended)

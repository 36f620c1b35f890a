"""The reason why Dynamo left a frame to Python, in one line.

Not here: the whole story of a graph break or a recompile (`frames`). Called by `ls` and `show`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.analysis.why.frames import shortened
from torchreel.events.frames import CacheSize, FrameSkip, GraphBreak
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile, Event

_KINDS = (CacheSize.kind, GraphBreak.kind, FrameSkip.kind)
_PREFIX = "Dynamo decided to skip the frame while tracing: "


def why_skipped(store: Store, compile: Compile) -> str:
    """Return the reason why Dynamo left a frame to Python: a limit, graph break, torch's words.

    '' if the event log has none.
    """
    return reasons(store, [compile])[compile.id]


def reasons(store: Store, compiles: Sequence[Compile]) -> dict[int, str]:
    """Return the same of some compiles, by their row ids."""
    events = queries.events_by_compile(store, compiles, _KINDS) if compiles else {}
    return {row.id: _reason(events.get(row.id, ())) for row in compiles}


def _reason(events: Sequence[Event]) -> str:
    reason = ""
    for event in events:
        match event.fields:
            case CacheSize(exceeded=limit, limit=most) if limit:
                return f"{limit} ({most}) reached"
            case GraphBreak(type=what, reason=text):
                reason = what or shortened(text)
            case FrameSkip(reason=text) if text and not reason:
                reason = shortened(text.removeprefix(_PREFIX))
    return reason


def verb_of(store: Store, compile: Compile) -> str | None:
    """Return the command that tells the story of a frame that was left to Python."""
    counts = queries.event_counts(store, compile)
    if any(
        isinstance(event.fields, CacheSize) and event.fields.exceeded
        for event in queries.events(store, compile, CacheSize.kind)
    ):
        return "why-recompile"
    return "why-graph-break" if counts.get(GraphBreak.kind) else None

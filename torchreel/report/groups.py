"""Groups failures, restarts, recompiles and graph breaks by their reason.

Lives here: which of them are one, and what is said of it in place.  Not here: the stories of a
single compile (`compiles.stories`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from torchreel.analysis.event_log import CompileEventLog, users_line
from torchreel.analysis.lowered import failing_node
from torchreel.analysis.why import grouped_causes
from torchreel.analysis.why.frames import shortened, why_graph_break
from torchreel.events.frames import CacheMiss, GraphBreak, Restart
from torchreel.report.compiles.exports import EXPORT, raised_line
from torchreel.report.compiles.graphs import last_line
from torchreel.report.compiles.rows import RecordingFacts
from torchreel.report.compiles.stories import line_of, stories_of
from torchreel.report.document import CauseGroup, FailureGroup, ReducedCase, SourceLine, WhyStory
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile, Event, Failure

Places = Mapping[int, int]
"""The place of each compile in the document, by its row id."""
NextOf = Callable[[Compile], str]
"""The command to run next, for a compile."""
_MOST_WHY = 2
_MOST_MESSAGE = 20_000


def failure_groups(
    store: Store,
    found: Iterable[RecordingFacts],
    places: Places,
    next_of: NextOf,
    reduced: Callable[[Failure, str], ReducedCase | None],
) -> list[FailureGroup]:
    """Return the distinct failures: those that happened most often first."""
    by_signature: dict[str, list[tuple[Failure, Compile | None]]] = {}
    for facts in found:
        rows = {row.id: row for row in facts.compiles}
        for failure in facts.failures:
            known = by_signature.setdefault(failure.signature_digest, [])
            known.append(
                (failure, rows.get(failure.compile_id) if failure.compile_id is not None else None)
            )
    groups = [
        _failure_group(store, same, places, next_of, reduced) for same in by_signature.values()
    ]
    return sorted([*groups, *_crashed(found, places, next_of)], key=lambda group: -group.count)


def _failure_group(
    store: Store,
    same: list[tuple[Failure, Compile | None]],
    places: Places,
    next_of: NextOf,
    reduced: Callable[[Failure, str], ReducedCase | None],
) -> FailureGroup:
    failure, compile = same[0]
    signature, following = failure.signature, next_of(compile) if compile else ""
    line, node = _line_and_node(store, compile, failure)
    cases = (reduced(each, following) for each, _ in same)
    return FailureGroup(
        failure.signature_digest[:12], failure.failure_class, _where(signature),
        " <- ".join(signature.exception_types) or failure.exception_type,
        failure.message[:_MOST_MESSAGE],
        list(dict.fromkeys(places[row.id] for _, row in same if row and row.id in places)),
        len(same),
        line, signature.frames[0] if signature.frames else "",
        _why(store, compile), following,
        min((case for case in cases if case), key=lambda case: case.after, default=None),
        node,
    )  # fmt: skip


def _line_and_node(
    store: Store, compile: Compile | None, failure: Failure
) -> tuple[SourceLine | None, str]:
    """Return the user's line of a failure, and the graph node that it was taken from, or ''."""
    named = last_line(failure.message)
    if named is not None:
        return SourceLine(named.file, named.line, named.function, named.code), ""
    if compile is None:
        return None, ""
    if compile.backend == EXPORT:
        return queries.readable(store, lambda: raised_line(store, failure), None), ""
    log = CompileEventLog(store, compile)
    node = queries.readable(store, lambda: failing_node(log, failure), None)
    line = users_line(node.stack) if node else None
    if node is None or line is None:
        return None, node.node if node else ""
    return line_of(line, node.code if line == node.stack[-1] else ""), node.node


def _where(signature: Signature) -> str:
    return f"{signature.stage} {signature.partition}".strip()


def _why(store: Store, compile: Compile | None) -> list[WhyStory]:
    """Return the graph breaks that made a compile fail; [] for any other failure."""
    if compile is None:
        return []
    log = CompileEventLog(store, compile)
    found = queries.readable(store, lambda: why_graph_break(log), [])
    raised = [story for story in found if story.facts.get("outcome") == "raised"]
    return stories_of(log, raised[:_MOST_WHY])


def _crashed(
    found: Iterable[RecordingFacts], places: Places, next_of: NextOf
) -> Iterator[FailureGroup]:
    """Yield the compiles that died with their process, and nobody wrote that down."""
    for facts in found:
        known = {failure.compile_id for failure in facts.failures}
        for row in facts.compiles:
            if row.status in queries.FAILING and row.id not in known:
                how = facts.recording.exit_signal or "the process died"
                yield FailureGroup(
                    "", row.status, "", how, "", [places[row.id]], 1, next=next_of(row)
                )


# -- restarts, recompiles, graph breaks -----------------------------------------------------------


def cause_groups(found: Iterable[RecordingFacts], places: Places) -> list[CauseGroup]:
    """Return the distinct reasons, by kind; those that came up most often first."""
    groups: dict[tuple[Json, ...], list[tuple[RecordingFacts, Event]]] = {}
    for facts in found:
        names = {row.id: row.frame_name or "" for row in facts.compiles}
        for event in chain.from_iterable(facts.events.values()):
            if event.compile_id in places and (key := _key(event, names, facts)):
                groups.setdefault(key, []).append((facts, event))
    rows = [_cause(key, events, places) for key, events in groups.items()]
    return sorted(rows, key=lambda row: (_ORDER.index(row.kind), -row.count))


_ORDER = ("recompile", "graph break", "restart")


def _key(event: Event, names: Mapping[int, str], facts: RecordingFacts) -> tuple[Json, ...]:
    """Return a key that is equal for two events of one cause; () for an event that has none."""
    if isinstance(event.fields, Restart):
        return "restart", event.fields.type, shortened(event.fields.reason or "")
    return grouped_causes.key(event, names.get(event.compile_id or 0, ""), facts.line(event))


def last_text(key: tuple[Json, ...]) -> str:
    """Return the last part of a key that is not empty: the type of a restart without a reason."""
    return next(str(part) for part in reversed(key) if part)


def _reason(event: Event) -> str:
    match event.fields:
        case Restart(reason=reason) | CacheMiss(reason=reason) | GraphBreak(reason=reason):
            return reason or ""
    return ""


def _cause(
    key: tuple[Json, ...], events: list[tuple[RecordingFacts, Event]], places: Places
) -> CauseGroup:
    facts, first = events[0]
    reason = _reason(first)
    kind = str(key[0])
    what = str(key[1]) if kind == "graph break" else shortened(reason) or last_text(key)
    line = facts.line(first)
    touched = dict.fromkeys(
        places[id_] for _, event in events if (id_ := event.compile_id) is not None
    )
    count = len(touched) if kind == "recompile" else len(events)
    return CauseGroup(
        kind, what, list(touched), count, reason[:_MOST_MESSAGE],
        line_of(line) if line else None,
    )  # fmt: skip

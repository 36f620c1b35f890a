"""Compares a recorded compile with its replay: the event logs, graphs, output code and failure.

Lives here: the comparison as a whole, of graphs, code and failures, and the first difference as
text.  Not here: the event logs (`events`), what may differ (`normalise`, `rules`), running the
replay (`launch`).

Both sides are read from stores, through the same queries: a replay is a recording.  Graphs are
compared by the bytes of their portable form, output code by its normalised bytes, a failure by its
signature and what it says.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten

from torchreel.errors import DamagedStore
from torchreel.events.backends import BackendReturn
from torchreel.replay.compare.events import Walk
from torchreel.replay.compare.lanes import (
    WHOLE,
    Lane,
    allowed_of,
    cache_hits,
    facts_at_start,
    holes,
    lanes,
    lines_and_callers,
    symbols_found_equal,
)
from torchreel.replay.compare.normalise import (
    canonical_cached_code,
    canonical_code,
    canonical_files,
    canonical_text,
)
from torchreel.replay.compare.rules import CLASSES, FLIGHT, ON_REQUEST, SCOPES, excuses
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.time_travel import Stop, Until, reached, up_to
from torchreel.replay.compare.unified import parting, unified
from torchreel.replay.compare.verdict import Comparison, Divergence, Reached
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.failures.normalised_messages import is_compiler_output, own_message
from torchreel.store.records import Compile, Failure

_STAGES = ("joint", "forward", "backward", "post_grad")
_DIFF_LINES = 40
_VALUE = 180  # characters of a value that is shown

Key = tuple[str, str, str]  # kind, stage, partition


@dataclass(frozen=True)
class Item:
    """One thing to compare: its blob, in which store."""

    store: Store
    digest: str
    cached: bool = False
    """True if it, or its counterpart, came from a cache."""
    is_checkpoint: bool = False
    """True for the graph of a checkpoint."""

    def canonical(self, kind: str) -> bytes:
        """Return the bytes that have to be equal.

        Raises DamagedStore when the blob is no such thing.
        """
        data = self.store.read_blob(self.digest)
        try:
            if kind == "output code":
                canonical = canonical_cached_code if self.cached else canonical_code
                return canonical(data.decode("utf-8", "surrogatepass")).encode()
            # Folded, which not all stores are; whole, it may be a thousand times more.
            document = parse_json(data)
            if self.is_checkpoint and isinstance(document, Mapping):
                document = document["graph"]
            document = _without_operators(graph_documents.folded(document))
            whole = canonical_json(document)
            text = canonical_files(whole.decode("utf-8", "surrogatepass"))
            return text.encode("utf-8", "surrogatepass")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedStore(
                f"What {self.store.target} has as {kind} ({self.digest[:12]}) is none: {error}."
            ) from error


def _without_operators(document: Json) -> Json:
    """Return a graph without the descriptions of its operators.

    The place where an operator is defined may differ; its results are described with the nodes.
    """
    extra = document.get("extra") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(extra, Mapping):
        return document
    modules = document.get("modules")
    inner = modules.items() if isinstance(modules, Mapping) else ()
    return {
        **document,
        "extra": {key: value for key, value in extra.items() if key != "operators"},
        "modules": {name: _without_operators(one) for name, one in inner},
    }


@dataclass(frozen=True)
class EventComparison:
    """Everything that was compared, and the first difference ('' when there is none)."""

    compared: tuple[Comparison, ...]
    difference: str
    detail: str
    notes: tuple[str, ...] = ()
    divergence: Divergence | None = None
    reached: Reached | None = None
    hole: str = ""
    """Events are missing in the recorded event log where the two part: nothing can be said."""

    @property
    def agrees(self) -> bool:
        """Return True if every comparison agrees."""
        return self.divergence is None and all(row.agrees for row in self.compared)

    @property
    def failed_alike(self) -> bool:
        """Return True if both sides failed in the same way; a hang ends at a time limit."""
        return any(row.kind == "failure" and row.agrees for row in self.compared)


@dataclass(frozen=True)
class Side:
    """A compile in its store; a replay may have made none."""

    store: Store
    compile: Compile | None


@dataclass(frozen=True)
class Question:
    """A request to compare: the checkpoint to begin at, and the differences that are allowed."""

    point: Point
    allow: frozenset[str] = frozenset()
    cut: bool = False
    """The recorded process died: its event log may end anywhere."""
    until: Until = field(default_factory=Until)
    stop: Stop | None = None
    """The place where the replay was stopped, if it was."""
    stand_ins: frozenset[str] = frozenset()
    """The operators that the replay had stand-ins of."""
    unfinished: bool = False
    """The replay was stopped at its time limit: its event log may end anywhere too."""

    @property
    def partial(self) -> bool:
        """Return True if the replay has not done all that was recorded: it was stopped."""
        return self.stop is not None or self.unfinished


def compare(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Compare everything after a checkpoint."""
    events = _events(recorded, replayed, question)
    things = _things(recorded, replayed, question)
    detail, difference = things.detail, things.difference
    if events.divergence is not None:
        detail, difference = str(events.divergence), events.divergence.difference
    return EventComparison(
        (*events.compared, *things.compared), difference, detail, (*events.notes, *things.notes),
        events.divergence, events.reached, events.hole,
    )  # fmt: skip


def is_bare(recorded: Side, point: Point) -> bool:
    """Return True if a recording holds nothing after a checkpoint that could be compared."""
    if recorded.compile is None or _items(recorded, point, cached=False):
        return False
    if _failure(recorded) is not None and _failure_out_of_scope(recorded, point) is None:
        return False
    excused = excuses(allowed_of(recorded.store, recorded.compile))
    found = lanes(recorded.store, recorded.compile, SCOPES[point.entry], point, excused)
    return not any(lane.lines or lane.cached for lane in (found or {}).values())


# -- events ---------------------------------------------------------------------------------------


def _events(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    """Return the two event logs, event by event."""
    point = question.point
    scope = SCOPES[point.entry]
    if recorded.compile is None or replayed.compile is None:
        return EventComparison((), "", "")
    allowed = excuses(allowed_of(recorded.store, recorded.compile, question.allow))
    stand_ins = question.stand_ins
    equal = symbols_found_equal(recorded.store, recorded.compile)
    ours = lanes(
        recorded.store, recorded.compile, scope, point, allowed, stand_ins=stand_ins, equal=equal
    )
    if ours is None:
        why = (
            "no events were compared: the event log does not say where the "
            f"{point.entry} checkpoint is"
        )
        return EventComparison((), "", "", (why,))
    if _is_summary(recorded, ours):
        why = (
            f"flight mode kept a summary of attempt {recorded.compile.place} alone: of an attempt "
            "that was begun anew as usual, no events are compared"
        )
        return EventComparison((), "", "", (why,))
    again = Point(point.entry, point.partition)
    _, called_by = lines_and_callers(recorded.store, recorded.compile)
    known = facts_at_start(recorded.store, recorded.compile, point)
    theirs = lanes(
        replayed.store, replayed.compile, scope, again, allowed, replay=True, known=known,
        stand_ins=stand_ins, equal=equal, called_by=called_by,
    )  # fmt: skip
    left: Mapping[str, Lane] = ours
    right: Mapping[str, Lane] = theirs or {}
    place = None
    if question.stop is not None:
        left, right = up_to(left, right, question.stop, question.until)
        place = reached(left, question.stop, question.until)
    walk = Walk(left, right, cut=question.cut or question.unfinished)
    notes = [*_from_caches(left), *_set_aside(walk.aside)]
    if question.cut:
        notes.append("the recorded process died: its event log is compared as far as it goes")
    hole = _hole(recorded.store, recorded.compile, walk.divergence)
    return EventComparison(tuple(walk.compared), "", "", tuple(notes), walk.divergence, place, hole)


def _is_summary(recorded: Side, found: Mapping[str, Lane]) -> bool:
    """Return True for an attempt of which flight mode let all events go: Dynamo began anew."""
    compile = recorded.compile
    return (
        compile is not None
        and compile.status == "restarted"
        and FLIGHT in allowed_of(recorded.store, compile)
        and not any(lane.lines or lane.aside for lane in found.values())
    )


def _hole(store: Store, compile: Compile, divergence: Divergence | None) -> str:
    """Return a note on events missing before the first difference, after the last common event.

    '' if none are missing.
    """
    if divergence is None or not divergence.before:
        return ""
    last = divergence.before[-1][0]
    until = divergence.seq
    if until is None:
        later = [event.seq for event in queries.events(store, compile) if event.seq > last]
        until = min(later, default=last + 1)
    missing = holes(store, compile, last, until)
    if not missing:
        return ""
    return (
        f"the event log has a hole: {len(missing)} events from {missing[0]} on are missing, after "
        f"event "
        f"{last}; what is before it is identical. See what was lost with 'torchreel show', and "
        "record again"
    )


def _from_caches(recorded: Mapping[str, Lane]) -> Iterator[str]:
    caches = sorted({lane.cached for lane in recorded.values() if lane.cached})
    if caches:
        yield (
            "when it was recorded, the code came from a cache "
            f"({', '.join(caches)}): what was done to make it is not in the event log"
        )


def _set_aside(counts: Counter[str]) -> Iterator[str]:
    reasons = {**CLASSES, **ON_REQUEST}
    for why in sorted(counts):
        if counts[why]:
            yield f"set aside: {why}, {counts[why]} times: {reasons[why]}"


# -- graphs, code, failure ------------------------------------------------------------------------


def _things(recorded: Side, replayed: Side, question: Question) -> EventComparison:
    point, stopped = question.point, question.partial
    hits = _cache_hits(recorded)
    rows, difference, detail = [], "", ""
    notes: list[str] = []
    in_flight = recorded.compile is not None and (
        FLIGHT in allowed_of(recorded.store, recorded.compile)
    )
    if in_flight:
        left, right = (_checkpoint_items(side, point) for side in (recorded, replayed))
        if question.cut:  # a process that died has left the checkpoint that it died on
            right = {key: items for key, items in right.items() if key in left}
        notes.append(
            "flight mode keeps no graphs between the stages and no output code: what was compared "
            "of them are the graphs of checkpoints, and each kernel's code"
        )
    else:
        left, right = (_items(side, point, cached=bool(hits)) for side in (recorded, replayed))
    for key in sorted({*left, *right}, key=_order):
        row, shown = _compare_items(key, left.get(key, []), right.get(key, []), stopped)
        if stopped and not row.recorded and not row.replayed:
            continue
        if _came_from_cache(row, left, hits):
            notes.append(
                f"{row.replayed} {row.kind}(s) of stage {row.stage} have nothing to be compared "
                "with: when it was recorded, the code came from a cache"
            )
            continue
        some = 0 < row.identical == row.replayed < row.recorded
        if WHOLE in hits and row.kind == "output code" and some:
            # A cache gives the code of a backward with that of its forward.
            notes.append(
                f"{row.recorded - row.replayed} more of the output codes came from a cache at once"
            )
            row = replace(row, recorded=row.replayed)
        rows.append(row)
        if not row.agrees and not detail:
            difference, detail = shown, _first_difference(row)
    failure: list[Comparison]
    failure, failed = ([], "") if stopped else _compare_failures(recorded, replayed, point)
    rows += failure
    died = _failure(recorded)
    if failure and not failed and died is not None and _has_unknown_end(died):
        notes.append(
            "nobody saw by which signal the recorded process ended: the replay ended in the same "
            f"stage, by {_signal(replayed)}"
        )
    if (own := _failure_out_of_scope(recorded, point)) is not None and not stopped:
        notes.append(
            f"{_name(own)} was recorded and is not compared: what raised it is no part of a replay "
            f"from the {point.entry} checkpoint"
        )
    return EventComparison(tuple(rows), difference, detail or failed, tuple(notes))


def _cache_hits(side: Side) -> frozenset[str]:
    return frozenset() if side.compile is None else cache_hits(side.store, side.compile)


def _came_from_cache(row: Comparison, recorded: Mapping[Key, object], hits: frozenset[str]) -> bool:
    """Return True for things that the recorded compile never made, as a cache gave it the code."""
    if WHOLE in hits and row.recorded == 0:
        return True
    has_code = any(
        kind == "output code" and row.partition in ("", partition)
        for kind, _, partition in recorded
    )
    return bool(hits) and row.kind == "graph" and row.recorded == 0 and has_code


def _order(key: Key) -> tuple[int, str, str]:
    kind, stage, partition = key
    place = [*_STAGES, ""].index(stage) if stage in (*_STAGES, "") else 9
    return (place if kind == "graph" else 8, partition, kind)


def _items(side: Side, point: Point, *, cached: bool) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = defaultdict(list)
    store, compile, scope = side.store, side.compile, SCOPES[point.entry]
    if compile is None:
        return found
    for graph in queries.graphs(store, compile):
        if graph.stage in scope.graphs and point.partition in ("", graph.partition):
            found["graph", graph.stage, graph.partition].append(Item(store, graph.digest))
    codes = () if "codegen" in scope.without else queries.output_codes(store, compile)
    for code in codes:
        if point.partition in ("", code.partition):
            found["output code", "codegen", code.partition].append(Item(store, code.digest, cached))
    return found


def _checkpoint_items(side: Side, point: Point) -> dict[Key, list[Item]]:
    """Return the graphs of a compile's checkpoints after `point`, which flight mode keeps."""
    found: dict[Key, list[Item]] = defaultdict(list)
    if side.compile is None or "forward" not in SCOPES[point.entry].graphs:
        return found
    for row in queries.checkpoints(side.store, side.compile):
        if row.entry == "aot":
            item = Item(side.store, row.digest, is_checkpoint=True)
            found["graph", "aot", row.partition].append(item)
    return found


def _compare_items(
    key: Key, left: Sequence[Item], right: Sequence[Item], stopped: bool
) -> tuple[Comparison, str]:
    """Compare the items of one key; return the counts, and the first difference as text.

    A replay that was stopped has not made all of them.
    """
    kind, stage, partition = key
    if stopped:
        left = left[: len(right)]
    equal, shown = 0, ""
    for ours, theirs in zip(left, right, strict=False):
        if ours.digest == theirs.digest or ours.canonical(kind) == theirs.canonical(kind):
            equal += 1
        elif not shown:
            shown = _difference(kind, ours.canonical(kind), theirs.canonical(kind))
    return Comparison(stage, partition, kind, len(left), len(right), equal), shown


def _difference(kind: str, left: bytes, right: bytes) -> str:
    if kind == "output code":
        return unified(left.decode().splitlines(), right.decode().splitlines(), context=3)
    whole = graph_documents.whole
    return _graph_difference(whole(parse_json(left)), whole(parse_json(right)))


def _first_difference(row: Comparison) -> str:
    where = f"{row.kind} of stage {row.stage}" + (f" ({row.partition})" if row.partition else "")
    if row.recorded != row.replayed:
        return f"the {where}: {row.recorded} recorded, {row.replayed} replayed"
    return f"the {where} differs in {row.recorded - row.identical} of {row.recorded}"


def _compare_failures(recorded: Side, replayed: Side, point: Point) -> tuple[list[Comparison], str]:
    ours, theirs = _failure(recorded), _failure(replayed)
    if _failure_out_of_scope(recorded, point) is not None:
        ours = None
    if point.entry == "aot" and ours is not None and ours.partition not in ("", point.partition):
        ours = None
    raised = _fell_back_on(recorded) if ours is None and point.entry == "graph" else None
    if raised is not None:
        again = theirs and (theirs.exception_type.rpartition(".")[2], theirs.message)
        same, stage = raised == again, theirs.stage if theirs else "dynamo"
        row = Comparison(stage, point.partition, "failure", 1, theirs is not None, same)
        what = f"the failure: {raised[0]} of the backend recorded, {_name(theirs)} replayed"
        return [row], "" if same else what
    if ours is None and theirs is None:
        return [], ""
    same = ours is not None and theirs is not None and _is_same(ours, theirs, point)
    stage = (ours or theirs).stage  # type: ignore[union-attr]
    row = Comparison(stage, point.partition, "failure", ours is not None, theirs is not None, same)
    what = f"the failure: {_name(ours)} recorded, {_name(theirs)} replayed"
    return [row], "" if same else what + _messages(ours, theirs)


_RETURN = BackendReturn.kind


def _fell_back_on(side: Side) -> tuple[Json, Json] | None:
    """Return type and message of the backend's exception after which Dynamo fell back on eager.

    For Dynamo that is a graph break and no failure; a replay from the graph has no Dynamo.
    """
    events = [] if side.compile is None else queries.events(side.store, side.compile, _RETURN)
    for event in events:
        data = event.data
        if isinstance(data, Mapping) and data.get("outcome") == "fallback":
            return data.get("exception"), data.get("message")
    return None


# What calls a backend: a replay from the graph calls it without.
_CALLERS = ("torch._dynamo.output_graph:", "torch._dynamo.convert_frame:")


def _is_same(ours: Failure, theirs: Failure, point: Point) -> bool:
    """Return True if both are one failure, whichever function called the backend that raised."""
    wanted, seen = ours.signature, theirs.signature
    if _has_unknown_end(ours) and seen.signal in queries.FAULTS:
        wanted = replace(wanted, signal=seen.signal)
    if point.entry == "graph":
        wanted, seen = (
            replace(one, frames=tuple(f for f in one.frames if not f.startswith(_CALLERS)))
            for one in (wanted, seen)
        )
    return wanted.matches(seen) and _said(ours) == _said(theirs)


def _said(failure: Failure) -> str | None:
    """Return the words of an exception, with its numbers and names; None for another failure.

    A signature leaves them out, as it has to know the same bug in a graph that is smaller.
    """
    if failure.failure_class != "exception" or is_compiler_output(failure.message):
        return None  # a compiler names the columns of code, which is compared itself
    return canonical_text(own_message(failure.message)).strip()


def _messages(ours: Failure | None, theirs: Failure | None) -> str:
    """Return both messages where they differ, for the line that says which failures differ."""
    said = [_said(one) for one in (ours, theirs) if one is not None]
    if len(set(said)) < 2 or None in said:
        return ""
    return ": " + ", then ".join(f'"{shorten(str(text), _VALUE)}"' for text in said)


def _has_unknown_end(failure: Failure) -> bool:
    """Return True for a crash of a process that nobody waited for: its signal is not known."""
    return failure.failure_class == "crash" and failure.signature.signal is None


def _failure(side: Side) -> Failure | None:
    found = None if side.compile is None else queries.failure_of(side.store, side.compile)
    return None if found is not None and found.is_found else found


def _signal(side: Side) -> str:
    found = _failure(side)
    return (found.signature.signal if found is not None else None) or "no signal that is known"


def _failure_out_of_scope(side: Side, point: Point) -> Failure | None:
    """Return the failure of a compile if it is of a stage that this entry does not replay.

    Dynamo makes guards after the backend has returned: no replay from the graph can fail there.
    """
    found = _failure(side)
    is_outside = found is not None and found.stage in SCOPES[point.entry].without
    return found if is_outside else None


def _name(failure: Failure | None) -> str:
    if failure is None:
        return "none"
    what = failure.exception_type or failure.signature.signal or failure.failure_class
    return f"{what} in stage {failure.stage}"


def _graph_difference(left: Json, right: Json) -> str:
    """Return the differences between two graphs, one line for each, by the names of the nodes."""
    lines = (f"{path}: {_both(a, b)}" for path, a, b in _walk(left, right))
    return "\n".join(itertools.islice(lines, _DIFF_LINES))


def _both(recorded: Json, replayed: Json) -> str:
    ours, theirs = parting(_dump(recorded), _dump(replayed), _VALUE)
    return f"recorded {ours}, replayed {theirs}"


def _walk(left: Json, right: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            inner = f"{path}.{key}" if path else key
            yield from _walk(left.get(key, "(absent)"), right.get(key, "(absent)"), inner)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (ours, theirs) in enumerate(zip(left, right, strict=True)):
            yield from _walk(ours, theirs, f"{path}[{_label(ours, number)}]")
    elif left != right:
        yield path, left, right


def _label(item: Json, number: int) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return str(name or number)


def _dump(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def without_kernels(outcomes: Sequence[EventComparison], stand_ins: frozenset[str]) -> str:
    """Say why a failure of compiled code did not come again; '' where the code itself differs."""
    differing = {row.kind for outcome in outcomes for row in outcome.compared if not row.agrees}
    worst = next((outcome for outcome in outcomes if not outcome.agrees), None)
    if not stand_ins or worst is None or differing - {"attempt"} != {"failure"}:
        return ""
    return (
        f"all that was compiled is identical, but {worst.detail}: what the kernels of "
        f"{', '.join(sorted(stand_ins))} compute is not recorded; name the module that defines "
        "them with --import MODULE, or replay the frame with --entry frame --trust"
    )

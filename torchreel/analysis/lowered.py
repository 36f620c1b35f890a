"""Finds the graph node that Inductor was at when something happened, and the user's line of that.

Lives here: from an event of the stage `lowering` to a node and its stack.  Not here: events that
have a stack of their own (`event_log`).  While it lowers, Inductor asks the ShapeEnv as Dynamo
does, but nothing of the program is being traced then: the line is that of the node.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchreel.analysis.event_log import CompileEventLog, users_line
from torchreel.errors import StoreError
from torchreel.events.inductor import Kernel, Lowering
from torchreel.store.blobs.pages import TICK
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.failures.signature import lowered_when_it_crashed
from torchreel.store.records import Event, Failure, Graph, StackFrame, Stage

STAGE = "lowering"


@dataclass(frozen=True)
class Lowered:
    """A node that was being lowered: its name, the stack it was traced from, and the last line."""

    node: str
    stack: tuple[StackFrame, ...] = ()
    code: str = ""


def lowered(log: CompileEventLog, event: Event) -> Lowered | None:
    """Return the node that was being lowered at an event; None at any other stage.

    An `inductor.lowering` is noted when its node is done, so it is the next one.
    """
    if event.stage != STAGE:
        return None
    done = log.of(Lowering.kind)
    place = bisect([each.seq for each in done], event.seq)
    if place == len(done) or not done[place].name:
        return None
    return _lowered(log, _graph(log, event.time_ns), done[place].name)


def failing_node(log: CompileEventLog, failure: Failure) -> Lowered | None:
    """Return the node that Inductor failed at; None where that can't be told.

    While it lowers, that is the node whose lowering raised, or else the first one that was not done
    when it hung.  Later, it is a node of the kernel that the message names.
    """
    graph = _graph(log, failure.time_ns)
    if failure.stage == STAGE and graph is not None:
        name = _not_done(log, graph, failure)
        return _lowered(log, graph, name) if name else None
    for event, kernel in log.typed(Kernel):
        if _KERNEL.fullmatch(event.name) and event.name in _KERNEL.findall(failure.message):
            found = [_lowered(log, row, name) for row in _lowerable(log) for name in kernel.origins]
            return next((node for node in found if node.stack), None)
    return None


def _not_done(log: CompileEventLog, graph: Graph, failure: Failure) -> str | None:
    if failure.failure_class == "crash":
        # What was done last may be missing: it died with the process.
        return lowered_when_it_crashed(failure.message)
    before = [
        (event, fields)
        for event, fields in log.typed(Lowering)
        if _began(log, failure) <= event.time_ns + TICK and event.time_ns <= failure.time_ns + TICK
    ]
    if before and before[-1][1].how == "raised":
        return before[-1][0].name
    done = {event.name for event, _ in before}
    calls = (str(node.get("name")) for node in _nodes(log, graph) if node.get("op") in _CALLS)
    return next((name for name in calls if name not in done), None)


def _began(log: CompileEventLog, failure: Failure) -> int:
    """Return when the stage in which it failed began."""
    times = [row.started_ns for row in log.stages if _is_of(row, failure)]
    return max((time for time in times if time <= failure.time_ns), default=0)


def _is_of(stage: Stage, failure: Failure) -> bool:
    return stage.stage == failure.stage and stage.partition == failure.partition


_CALLS = ("call_function", "call_method", "call_module")
_KERNEL = re.compile(r"\b(?:cpp|triton)_[a-z0-9_]{1,200}\b", re.ASCII)


def _lowered(log: CompileEventLog, graph: Graph | None, name: str) -> Lowered:
    stack, code = _traced_from(log, graph, name)
    return Lowered(name, stack, code)


def line_at(log: CompileEventLog, event: Event) -> StackFrame | None:
    """Return the user's line at an event, by way of the node that was being lowered if need be."""
    line = log.line(event)
    node = lowered(log, event) if line is None else None
    return users_line(node.stack) if node else line


def _graph(log: CompileEventLog, time_ns: int) -> Graph | None:
    """Return the graph that was being lowered: that of the partition whose stage was open."""
    open_then = [
        stage.partition
        for stage in log.stages
        if stage.stage == STAGE
        and stage.started_ns <= time_ns
        and (stage.ended_ns is None or time_ns <= stage.ended_ns + TICK)
    ]
    found = [graph for graph in _lowerable(log) if graph.partition in open_then]
    return found[-1] if found else None


def _lowerable(log: CompileEventLog) -> list[Graph]:
    return [graph for graph in log.graphs if graph.stage == "post_grad"]


_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]*)", line (?P<line>\d{1,9}), in (?P<name>[^\n]*)\n'
    r"(?: +(?P<code>.*)\n?)?",
    re.MULTILINE,
)


def _traced_from(
    log: CompileEventLog, graph: Graph | None, name: str
) -> tuple[tuple[StackFrame, ...], str]:
    found = list(_FRAME.finditer("" if graph is None else _traces(log, graph).get(name, "")))
    frames = tuple(
        StackFrame(log.compile.recording_id, -1, None, m["file"], int(m["line"]), m["name"])
        for m in found
    )
    return frames, (found[-1]["code"] or "").strip() if found else ""


def _traces(log: CompileEventLog, graph: Graph) -> Mapping[str, str]:
    """Return the stack trace of each node of a graph, by the node's name."""
    if graph.digest not in log.traces:
        log.traces[graph.digest] = dict(_read_traces(log, graph))
    return log.traces[graph.digest]


def _read_traces(log: CompileEventLog, graph: Graph) -> Iterator[tuple[str, str]]:
    for node in _nodes(log, graph):
        if isinstance(meta := node.get("meta"), Mapping):
            yield str(node.get("name")), str(meta.get("stack_trace") or "")


def _nodes(log: CompileEventLog, graph: Graph) -> list[Mapping[str, Json]]:
    try:
        document = parse_json(log.store.read_blob(graph.digest))
    except (ValueError, RecursionError, StoreError):
        return []
    found = graph_documents.unfold(document) if isinstance(document, Mapping) else ()
    return [node for node in found if isinstance(node, Mapping)]

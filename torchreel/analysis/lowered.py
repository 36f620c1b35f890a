"""The graph node that Inductor was at when something happened, and the user's line of that.

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
from torchreel.events.inductor import Lowering
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import parse_json
from torchreel.store.records import Event, Graph, StackFrame

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
    name = done[place].name
    stack, code = _traced_from(log, _graph(log, event), name)
    return Lowered(name, stack, code)


def line_at(log: CompileEventLog, event: Event) -> StackFrame | None:
    """Return the user's line at an event, by way of the node that was being lowered if need be."""
    line = log.line(event)
    node = lowered(log, event) if line is None else None
    return users_line(node.stack) if node else line


def _graph(log: CompileEventLog, event: Event) -> Graph | None:
    """Return the graph that was being lowered: that of the partition whose stage was open."""
    open_then = [
        stage.partition
        for stage in log.stages
        if stage.stage == STAGE
        and stage.started_ns <= event.time_ns
        and (stage.ended_ns is None or event.time_ns <= stage.ended_ns)
    ]
    found = [g for g in log.graphs if g.stage == "post_grad" and g.partition in open_then]
    return found[-1] if found else None


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
    try:
        document = parse_json(log.store.read_blob(graph.digest))
    except (ValueError, RecursionError, StoreError):
        return
    for node in graph_documents.unfold(document) if isinstance(document, Mapping) else ():
        if isinstance(node, Mapping) and isinstance(meta := node.get("meta"), Mapping):
            yield str(node.get("name")), str(meta.get("stack_trace") or "")

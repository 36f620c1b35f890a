"""`torchreel show`: one compile, all that is known about it.

Lives here: what is shown and in which order, as text and as JSON. Everything shown is read as data:
nothing is resolved, imported or run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchreel.analysis import skipped
from torchreel.analysis.recording_words import ended, program, when
from torchreel.commands.rendering import failure, listing, streams
from torchreel.commands.rendering.graphs import graph_text
from torchreel.commands.rendering.text import count, seconds
from torchreel.commands.rendering.unreadable import as_far_as_readable
from torchreel.errors import UsageError
from torchreel.escaping.characters import visible
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.records import Compile, Event, Graph, Recording, Stage


@dataclass(frozen=True)
class ShowOptions:
    """The part of a compile to show; by default the overview."""

    graph: str | None = None
    code: bool = False
    events: bool = False
    traceback: bool = False
    json: bool = False

    def refuse_parts(self, address: Address) -> None:
        """Raise UsageError where a part is asked for of an event, which has none."""
        asked = {
            "--graph": self.graph is not None,
            "--code": self.code,
            "--events": self.events,
            "--traceback": self.traceback,
        }
        for option, is_asked in asked.items():
            if is_asked:
                raise UsageError(
                    f"{address} is one event, and {option} is a part of a compile: leave out "
                    f"{option}, or name the compile."
                )


def show(store: Store, address: Address, wanted: ShowOptions) -> None:
    """Print the wanted part of the compile that an address means."""
    with as_far_as_readable(store):
        _show(store, address, wanted)


def _show(store: Store, address: Address, wanted: ShowOptions) -> None:
    if address.event is not None:
        wanted.refuse_parts(address)
        _print_event(store, queries.event_at(store, address), wanted)
        return
    row = queries.compile_at(store, address)
    if wanted.graph is not None:
        _print_texts(_graphs(store, row, wanted.graph), wanted)
    elif wanted.code:
        _print_texts(_code(store, row), wanted)
    elif wanted.traceback:
        _print_texts(_traceback(store, row), wanted)
    elif wanted.events:
        _print_events(store, row, wanted)
        return
    elif wanted.json:
        listing.write_json(as_json(store, row))
    else:
        _print_overview(store, row)
    failure.print_next(store, row)


# -- the overview ---------------------------------------------------------------------------------


def _print_overview(store: Store, row: Compile) -> None:
    recording = queries.recording(store, row.recording_id)
    streams.result(f"{store.target}#{row.place}  {row.status}", style="bold")
    if row.status == "skipped":
        streams.result(f"left to Python: {skipped.why_skipped(store, row)}".rstrip(": "))
    _print_frame(store, recording, row)
    _print_stages(queries.stages(store, row))
    _print_graph_table(queries.graphs(store, row))
    _print_checkpoints(store, row)
    failure.print_failure(store, row)
    _print_pairs("config (not the default)", _config(store, row))
    environment = queries.environment(store, recording.id).items()
    _print_pairs("environment", [pair for pair in environment if pair[0] != PROCESS])
    _print_history(store, row)
    _print_lost(store, recording)


def _print_frame(store: Store, recording: Recording, row: Compile) -> None:
    facts = [
        ("frame", f"{row.frame_name}  {row.frame_file}:{row.frame_line}" if row.frame_name else ""),
        ("backend", row.backend or ""),
        ("program", program(recording)),
        ("recording", f"{recording.id}, {recording.kind}, {ended(recording)}"),
        ("started", when(recording.started_ns)),
        ("events", str(sum(queries.event_counts(store, row).values()))),
    ]
    table = streams.table("", "")
    table.show_header = False
    for name, text in facts:
        if text:
            streams.add_row(table, name, text)
    streams.show(table)


def _print_stages(stages: list[Stage]) -> None:
    if not stages:
        return
    table = streams.table("stage", "partition", "status", ">time")
    for stage, depth in zip(stages, _depths(stages), strict=True):
        # Indented: its time is a part of the time of the stage that it stands below.
        cells = ("  " * depth + stage.stage, stage.partition, stage.status, _lasted(stage))
        style = {"failed": "red", "open": "yellow"}.get(stage.status, "")
        streams.add_row(table, *cells, style=style)
    _section("stages", table)


def _depths(stages: list[Stage]) -> list[int]:
    """Return in how many others each stage began and ended; they come in the order they began."""
    within: list[Stage] = []
    depths = []
    for stage in stages:
        while within and not _holds(within[-1], stage):
            within.pop()
        depths.append(len(within))
        within.append(stage)
    return depths


def _holds(outer: Stage, inner: Stage) -> bool:
    if outer.ended_ns is None:
        return True
    return inner.ended_ns is not None and inner.ended_ns <= outer.ended_ns


def _lasted(stage: Stage) -> str:
    if stage.ended_ns is None:
        return "not left"
    return seconds((stage.ended_ns - stage.started_ns) / 1e9)


def _print_graph_table(graphs: list[Graph]) -> None:
    if not graphs:
        return
    table = streams.table("graph", "partition", ">inputs", ">call nodes", ">nodes", ">outputs")
    for graph in graphs:
        sizes = (graph.inputs, graph.call_nodes, graph.nodes, graph.outputs)
        streams.add_row(table, graph.stage, graph.partition, *sizes)
    _section("graphs", table)


def _print_checkpoints(store: Store, row: Compile) -> None:
    found = queries.checkpoints(store, row)
    names = [f"{c.entry} {c.partition}".strip() for c in found]
    streams.result()
    by_frame = "none; its frame was kept: replay it with --entry frame --trust"
    none = by_frame if queries.has_frame(store, row) else "none, so it cannot be replayed"
    streams.result(f"checkpoints: {', '.join(names) or none}")


def _print_history(store: Store, row: Compile) -> None:
    for replay in queries.replays(store, row):
        streams.result(f"replayed from {replay.entry}: {replay.verdict} {replay.detail}".rstrip())


def _print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    table = streams.table("", "")
    table.show_header = False
    for key, text in pairs:
        streams.add_row(table, key, text)
    if table.row_count:
        _section(title, table)


def _section(title: str, table: object) -> None:
    streams.result()
    streams.result(title, style="bold")
    streams.show(table)  # type: ignore[arg-type]


def _config(store: Store, row: Compile) -> list[tuple[str, str]]:
    return [
        (
            f"{entry.module}.{entry.key}",
            spelling.argument(entry.value, str) + ("" if entry.portable else "  (needs --trust)"),
        )
        for entry in queries.config(store, row.config_id)
    ]


def _print_lost(store: Store, recording: Recording) -> None:
    found = queries.lost(store, recording.id)
    if not found:
        return
    table = streams.table(">count", "place", "reason", "message")
    for item in found:
        streams.add_row(table, item.count, item.place, item.reason, item.message)
    _section("lost", table)


# -- one part -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """The text of a part of a compile, with what it is."""

    heading: str
    stage: str
    partition: str
    text: str


def _print_texts(found: Iterable[_Text], wanted: ShowOptions) -> None:
    if wanted.json:
        rows = ({k: v for k, v in vars(each).items() if k != "heading"} for each in found)
        listing.write(list(rows), listing.Format.JSON)
        return
    for each in found:
        if each.heading:
            streams.result(each.heading)
        streams.block(each.text)


def _graphs(store: Store, row: Compile, wanted: str) -> Iterator[_Text]:
    stage, _, partition = wanted.partition(":")
    graphs = queries.graphs(store, row)
    found = [g for g in graphs if g.stage == stage and partition in ("", g.partition)]
    if not found:
        known = list(dict.fromkeys(g.stage for g in graphs))
        raise UsageError(
            f"Compile {row.place} has no graph of stage {wanted!r}: it has "
            f"{', '.join(visible(name) for name in known) or 'none at all'}."
        )
    for graph in found:
        heading = f"# {graph.stage} {graph.partition}".rstrip()
        heading += f", {count(graph.call_nodes, 'call node')}"
        text = graph_text(store.read_blob(graph.digest))
        yield _Text(heading, graph.stage, graph.partition, text)


def _code(store: Store, row: Compile) -> Iterator[_Text]:
    found = queries.output_codes(store, row)
    if not found:
        raise UsageError(f"Compile {row.place} has no output code: it did not get that far.")
    for code in found:
        heading = f"# output code {code.partition}".rstrip()
        yield _Text(heading, "output_code", code.partition, _text(store, code.digest))


def _traceback(store: Store, row: Compile) -> Iterator[_Text]:
    found = queries.failure_of(store, row)
    if found is None or found.traceback is None:
        why = "did not fail" if found is None else "raised nothing: it was a " + found.failure_class
        raise UsageError(f"Compile {row.place} {why}, so there is no traceback.")
    yield _Text("", found.stage, found.partition, _text(store, found.traceback))


def _print_events(store: Store, row: Compile, wanted: ShowOptions) -> None:
    rows = [_event_row(store, row, event) for event in queries.events(store, row)]
    listing.write(rows, listing.Format.JSON if wanted.json else listing.Format.TABLE)
    if rows:
        streams.next_command("torchreel", "show", rows[-1]["address"])


def _event_row(store: Store, row: Compile, event: Event) -> listing.Row:
    return {
        "address": f"{store.target}#{row.place}@{event.seq}",
        "stage": event.stage,
        "kind": event.kind,
        "name": event.name,
        "payload": event.payload is not None,
    }


def _print_event(store: Store, event: Event, wanted: ShowOptions) -> None:
    payload = _text(store, event.payload) if event.payload is not None else ""
    if wanted.json:
        listing.write_json({**_facts(event), "data": event.data, "payload": payload})
        return
    for name, text in _facts(event).items():
        streams.result(f"{name}: {text}")
    streams.result()
    listing.write_json(event.data)
    if payload:
        streams.block(payload)


def _facts(event: Event) -> dict[str, Json]:
    return {"seq": event.seq, "stage": event.stage, "kind": event.kind, "name": event.name}


def _text(store: Store, digest: str) -> str:
    return store.read_blob(digest).decode("utf-8", "replace")


# -- as JSON --------------------------------------------------------------------------------------


def as_json(store: Store, row: Compile) -> Json:
    """Return all of the overview as one object."""
    recording = queries.recording(store, row.recording_id)
    found = queries.failure_of(store, row)
    return {
        "address": f"{store.target}#{row.place}",
        "recording": _plain(recording),
        "compile": _plain(row),
        "stages": [_plain(stage) for stage in queries.stages(store, row)],
        "graphs": [_plain(graph) for graph in queries.graphs(store, row)],
        "checkpoints": [_plain(point) for point in queries.checkpoints(store, row)],
        "failure": None if found is None else failure.as_json(found),
        "config": [entry._asdict() for entry in queries.config(store, row.config_id)],
        "environment": queries.environment(store, recording.id),
        "replays": [_plain(item) for item in queries.replays(store, row)],
        "lost": [_plain(item) for item in queries.lost(store, recording.id)],
    }


def _plain(row: object) -> Json:
    return dict(vars(row))

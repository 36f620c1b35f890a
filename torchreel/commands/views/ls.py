"""`torchreel ls`: the recordings of a store and their compiles."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.analysis.listing import PageRange, RecordingPage, read
from torchreel.analysis.recording_words import ended, program, when
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.listing import Format, Row
from torchreel.commands.rendering.text import count, shortened
from torchreel.commands.rendering.unreadable import as_far_as_readable
from torchreel.escaping.shell import command
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.documents.jsontypes import Json
from torchreel.store.files.locks import INSTEAD_OF
from torchreel.store.records import Compile, Failure, Graph, Recording

_STYLES = {
    "failed": "red",
    "crashed": "red",
    "hung": "red",
    "died": "red",
    "running": "yellow",
    "unknown": "yellow",
    "skipped": "yellow",
}


_COLUMNS = (
    "address", "recording", "kind", "compile_id", "attempt", "frame_name", "frame_file",
    "frame_line", "backend", "status", "stage", "failure", "skipped", "inputs", "call_nodes",
    "outputs",
)  # fmt: skip
"""The keys of a row, for the head of a listing without any."""


def ls(store: Store, address: Address, kind: Format, page: PageRange) -> None:
    """Print the rows of an address: a page of a store, a recording or the attempts at a compile."""
    with as_far_as_readable(store):
        queries.require(store, address)
        _ls(store, address, kind, page)


def _ls(store: Store, address: Address, kind: Format, page: PageRange) -> None:
    found = read(store, address, page)
    rows = [row for item in found.recordings for row in compile_rows(store, found, item, address)]
    if kind is Format.TABLE:
        _print_recordings(store, found)
        if found.recordings:
            _print_compiles([row for row in rows if row["compile_id"] is not None])
        _say_causes(store, found, address)
        if found.replays:
            replays = count(found.replays, "replay")
            every = command("torchreel", "ls", store.target, "--all")
            streams.say(f"{replays} in it: {every} lists them.")
    else:
        listing.write(rows, kind, _COLUMNS)
    _say_older(store, found, page)
    _print_own_file(store, found.recordings)
    _print_next(store, found, address, page)


def _say_older(store: Store, found: RecordingPage, page: PageRange) -> None:
    """Print how to see recordings older than the page."""
    if found.older:
        words = ["--before", str(found.recordings[0].id)]
        if page.limit != PageRange.limit:
            words += ["--limit", str(page.limit)]
        if page.replays:
            words.append("--all")
        ls_command = command("torchreel", "ls", store.target, *words)
        streams.say(
            f"{count(found.older, 'older recording')} in it: {ls_command} lists the newest."
        )


def _say_causes(store: Store, found: RecordingPage, address: Address) -> None:
    """Print the number of recompiles and graph breaks, and the commands that give the reasons."""
    for row in found.recordings if address.compile is None else ():
        counts = found.causes[row.id]
        if counts.verbs:
            where = f"{store.target}#{row.id}"
            verbs = ", ".join(command("torchreel", verb, where) for verb in counts.verbs)
            streams.say(f"{where}: {counts} ({verbs})")


def _print_own_file(store: Store, found: Sequence[Recording]) -> None:
    """Say that other processes of the same run are in files of their own."""
    for row in found[:1]:
        wanted = queries.environment(store, row.id).get(INSTEAD_OF)
        if wanted is not None:
            streams.say(
                f"{wanted} could not be shared between processes (its file system has no locks, or "
                "is on a network): each of them wrote a file of its own, and this is one."
            )


def compile_rows(
    store: Store, found: RecordingPage, recording: Recording, address: Address
) -> list[Row]:
    """Return one row per compile, and one for a recording without any."""
    compiles = [row for row in found.compiles[recording.id] if queries.is_covered(row, address)]
    rows = [_row(store, found, recording, row) for row in compiles]
    return rows or [_row(store, found, recording, None)]


def _row(store: Store, found: RecordingPage, recording: Recording, row: Compile | None) -> Row:
    failure = None if row is None else found.failures.get(row.id)
    columns: dict[str, Json] = {
        "address": f"{store.target}#{recording.id if row is None else row.place}",
        "recording": recording.id,
        "kind": recording.kind,
        **_attributes(row, "compile_id", "attempt", "frame_name", "frame_file", "frame_line"),
        **_attributes(row, "backend"),
        "status": recording.status if row is None else row.status,
        "stage": _stage(found, row, failure),
        "failure": None if failure is None else _failure_text(failure),
        "skipped": None if row is None else found.skipped.get(row.id),
        **_attributes(
            None if row is None else found.graphs.get(row.id), "inputs", "call_nodes", "outputs"
        ),
    }
    return columns


def _attributes(item: Compile | Graph | None, *names: str) -> dict[str, Json]:
    """Return some columns of a row; null where there is no such row."""
    return {name: None if item is None else vars(item)[name] for name in names}


def _stage(found: RecordingPage, row: Compile | None, failure: Failure | None) -> str | None:
    """Return the stage in which a compile failed, or the open one if no failure was recorded."""
    if failure is not None:
        return failure.stage
    still = None if row is None else found.stages.get(row.id)
    return None if still is None else still.stage


def _failure_text(failure: Failure) -> str:
    """Return a failure in one line."""
    signature = failure.signature
    match failure.failure_class:
        case "crash":
            return f"killed by {signature.signal}" if signature.signal else "the process died"
        case "hang":
            return "did not end"
        case "memory":
            return "out of memory"
        case "predicate" | "script":
            return shortened(signature.message)
        case "wrong_result":
            return f"wrong result ({signature.message})"
    name = "/".join(signature.exception_types) or failure.exception_type
    return f"{name}: {shortened(signature.message or failure.message)}"


def _print_recordings(store: Store, found: RecordingPage) -> None:
    table = streams.table("recording", "kind", "status", "started", ">lost", "program")
    for item in found.recordings:
        lost = found.lost.get(item.id, 0)
        cells = (f"{store.target}#{item.id}", item.kind, ended(item), when(item.started_ns))
        streams.add_row(table, *cells, lost, program(item), style=_STYLES.get(item.status, ""))
    streams.show(table)


def _print_compiles(rows: list[Row]) -> None:
    if not rows:
        streams.say("No compile was recorded.")
        return
    streams.result()
    last = "failure or reason" if any(row["skipped"] for row in rows) else "failure"
    table = streams.table("compile", "frame", "status", "stage", ">call nodes", last)
    for row in rows:
        cells = [row[key] for key in ("address", "frame_name", "status", "stage", "call_nodes")]
        streams.add_row(
            table, *cells, row["failure"] or _left(row), style=_STYLES.get(str(row["status"]), "")
        )
    streams.show(table)


def _left(row: Row) -> str:
    return f"left to Python: {row['skipped']}" if row["skipped"] else ""


def _print_next(store: Store, found: RecordingPage, address: Address, page: PageRange) -> None:
    row = found.latest_failing
    if not found.recordings and page.before is not None:
        streams.say(f"{store.target} holds no recording before {page.before}.")
        streams.next_command("torchreel", "ls", store.target)
    elif not found.recordings:
        streams.say(f"{store.target} holds {count(0, 'recording')}.")
        streams.next_command(
            "torchreel", "record", "-o", store.target, "--", "python", "PROGRAM.py"
        )
    elif row is not None:
        streams.next_command("torchreel", "show", f"{store.target}#{row.place}")
    else:
        streams.next_command("torchreel", *_next_of_success(store, found, address))


def _next_of_success(store: Store, found: RecordingPage, address: Address) -> tuple[str, str]:
    """Return the next verb, `show` or the reasons of recompiles, and its address, on success."""
    for row in found.recordings if address.compile is None else ():
        verbs = found.causes[row.id].verbs
        if verbs:
            return verbs[0], f"{store.target}#{row.id}"
    return "show", store.target

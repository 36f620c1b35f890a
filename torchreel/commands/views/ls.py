"""`torchreel ls`: the recordings of a store and their compiles."""

from __future__ import annotations

from datetime import datetime

from torchreel.analysis import causes, skipped
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


def ls(store: Store, address: Address, kind: Format, every: bool = True) -> None:
    """Print what an address covers: a store, a recording or the attempts at a compile.

    Of a store the replays are counted only, but for `every`.
    """
    with as_far_as_readable(store):
        queries.require(store, address)
        _ls(store, address, kind, every=every)


def _ls(store: Store, address: Address, kind: Format, *, every: bool) -> None:
    known = _recordings(store, address)
    listed = every or address.recording is not None
    found = [row for row in known if listed or row.kind != "replay"] or known
    rows = [row for item in found for row in compile_rows(store, item, address)]
    if kind is Format.TABLE:
        _print_recordings(store, found)
        _print_compiles([row for row in rows if row["compile_id"] is not None])
        _say_causes(store, found, address)
        if len(found) < len(known):
            replays = count(len(known) - len(found), "replay")
            streams.say(f"{replays} in it: torchreel ls {store.target} --all lists them.")
    else:
        listing.write(rows, kind)
    _print_own_file(store, found)
    _print_next(store, found, address)


def _say_causes(store: Store, found: list[Recording], address: Address) -> None:
    """Say how often Dynamo compiled again and broke graphs, and where the reasons are."""
    for row in found if address.compile is None else ():
        counts = causes.counts(store, row)
        if counts.verbs:
            where = f"{store.target}#{row.id}"
            told = ", ".join(command("torchreel", verb, where) for verb in counts.verbs)
            streams.say(f"{where}: {counts} ({told})")


def _print_own_file(store: Store, found: list[Recording]) -> None:
    """Say that other processes of the same run are in files of their own."""
    for row in found[:1]:
        wanted = queries.environment(store, row.id).get(INSTEAD_OF)
        if wanted is not None:
            streams.say(
                f"{wanted} could not be shared between processes (its file system has no locks, or "
                "is on a network): each of them wrote a file of its own, and this is one."
            )


def _recordings(store: Store, address: Address) -> list[Recording]:
    if address.recording is None:
        return queries.recordings(store)
    return [queries.recording(store, address.recording)]


def compile_rows(store: Store, recording: Recording, address: Address) -> list[Row]:
    """Return one row per compile; a recording without any gives one row that says so."""
    compiles = [row for row in queries.compiles(store, recording.id) if _is_meant(row, address)]
    failures = {f.compile_id: f for f in reversed(queries.failures(store, recording.id))}
    graphs = queries.first_graphs(store, recording.id)
    rows = [
        _row(store, recording, row, failures.get(row.id), graphs.get(row.id)) for row in compiles
    ]
    return rows or [_row(store, recording, None, None, None)]


def _is_meant(row: Compile, address: Address) -> bool:
    name = (address.generation, address.compile)
    named = address.compile is None or (row.generation, row.compile_id) == name
    return named and (address.attempt is None or row.attempt == address.attempt)


def _row(
    store: Store,
    recording: Recording,
    row: Compile | None,
    failure: Failure | None,
    graph: Graph | None,
) -> Row:
    columns: dict[str, Json] = {
        "address": f"{store.target}#{recording.id if row is None else row.place}",
        "recording": recording.id,
        "kind": recording.kind,
        **_attributes(row, "compile_id", "attempt", "frame_name", "frame_file", "frame_line"),
        **_attributes(row, "backend"),
        "status": recording.status if row is None else row.status,
        "stage": _stage(store, row, failure),
        "failure": None if failure is None else _told(failure),
        "skipped": _skipped(store, row),
        **_attributes(graph, "inputs", "call_nodes", "outputs"),
    }
    return columns


def _skipped(store: Store, row: Compile | None) -> str | None:
    """Return why a frame was left to Python; None where it was not."""
    if row is None or row.status != "skipped":
        return None
    return skipped.why_skipped(store, row)


def _attributes(item: Compile | Graph | None, *names: str) -> dict[str, Json]:
    """Return some columns of a row; null where there is no such row."""
    return {name: None if item is None else vars(item)[name] for name in names}


def _stage(store: Store, row: Compile | None, failure: Failure | None) -> str | None:
    """Return the stage in which a compile failed, or the open one if no failure was recorded."""
    if failure is not None:
        return failure.stage
    if row is None or row.status not in queries.FAILING:
        return None
    still = queries.open_stage(store, row)
    return still.stage if still is not None else None


def _told(failure: Failure) -> str:
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


def _print_recordings(store: Store, found: list[Recording]) -> None:
    table = streams.table("recording", "kind", "status", "started", ">lost", "program")
    for item in found:
        lost = sum(row.count for row in queries.lost(store, item.id))
        cells = (f"{store.target}#{item.id}", item.kind, ended(item), when(item.started_ns))
        streams.add_row(table, *cells, lost, program(item), style=_STYLES.get(item.status, ""))
    streams.show(table)


def ended(recording: Recording) -> str:
    """Return how a recording ended: 'done, status 1', 'died by SIGSEGV'."""
    if recording.exit_signal:
        return f"{recording.status} by {recording.exit_signal}"
    if recording.exit_status is not None:
        return f"{recording.status}, status {recording.exit_status}"
    return recording.status


def when(time_ns: int) -> str:
    """Return a point in time, in local time; the number itself where it is none."""
    try:
        return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(time_ns)


def program(recording: Recording) -> str:
    """Return the command line that was recorded; for a replay, what it replayed."""
    if isinstance(recording.argv, list):
        return command(*recording.argv)
    return str(recording.argv)


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


def _print_next(store: Store, found: list[Recording], address: Address) -> None:
    number = found[0].id if len(found) == 1 else None
    row = queries.latest_failing(store, number)
    if not found:
        streams.say(f"{store.target} holds {count(0, 'recording')}.")
        streams.next_command(
            "torchreel", "record", "-o", store.target, "--", "python", "PROGRAM.py"
        )
    elif row is not None:
        streams.next_command("torchreel", "show", f"{store.target}#{row.place}")
    else:
        streams.next_command("torchreel", *_next_of_success(store, found, address))


def _next_of_success(store: Store, found: list[Recording], address: Address) -> tuple[str, str]:
    """Return what to ask where nothing failed: why Dynamo compiled again, if it did."""
    for row in found if address.compile is None else ():
        verbs = causes.counts(store, row).verbs
        if verbs:
            return verbs[0], f"{store.target}#{row.id}"
    return "show", store.target

"""`torchreel shapes`: the symbol table of a compile as of an event, and what changed between two.

Lives here: what is shown, as tables and as JSON.  Not here: how the table comes about
(`torchreel.analysis.shapes`).  Everything shown is read as data; torch is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.analysis.differences import ShapeDifference, cell, differences
from torchreel.analysis.event_log import CompileEventLog, compile_of
from torchreel.analysis.lowered import line_at
from torchreel.analysis.shapes import Fact, Symbol, SymbolTable, shape_events, symbol_table
from torchreel.commands.rendering import listing, lost, streams
from torchreel.commands.rendering.text import count
from torchreel.events.shape_env import ShapeEnvCreate
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event


def shapes(store: Store, address: Address, at: int | None, env: int | None, json: bool) -> None:
    """Print the table right after an event: `at`, that of the address, or the last."""
    log = CompileEventLog(store, compile_of(store, address))
    events = shape_events(log, env)
    _require_event(store, log, at)
    table = symbol_table(events, address.event if at is None else at)
    if json:
        listing.write_json(_table_json(log, events, table))
    else:
        _print_table(log, events, table)
    lost.say_lost(store, address)
    streams.next_command("torchreel", "why", log.address, next(iter(table.symbols), "specialised"))


def _require_event(store: Store, log: CompileEventLog, *numbers: int | None) -> None:
    """Raise UsageError for the number of an event that the recording does not have."""
    for number in numbers:
        if number is not None:
            recording = log.compile.recording_id
            queries.event_at(store, Address(store.target, recording, event=number))


def _print_table(log: CompileEventLog, events: Sequence[Event], table: SymbolTable) -> None:
    where = f"as of event {table.at}, its last being {events[-1].seq}"
    streams.result(f"{log.address}: ShapeEnv {table.env} {where}", style="bold")
    by_seq = {event.seq: event for event in events}
    made = streams.table("symbol", ">value", "range", "is now", "source", "user's line", "event")
    for row in table.symbols.values():
        streams.add_row(made, *_cells(row), _line(log, by_seq, row.created), f"@{row.created}")
    streams.show(made)
    if not table.symbols:
        streams.result("no symbols: every size is a number")
    for title, facts in _facts(table):
        _print_facts(log, by_seq, title, facts)
    others = _others(log, table.env)
    if others:
        streams.result(f"other ShapeEnvs of this compile (--env): {', '.join(map(str, others))}")


def _cells(row: Symbol) -> tuple[str, str, str, str, str]:
    notes = [", ".join(row.sources) or ("" if row.backed else "known at run time only")]
    notes += ["counts as a size"] * row.size_like
    now = cell(row, "replacement") or (f"renamed to {row.renamed}" if row.renamed else "")
    return row.name, cell(row, "hint"), cell(row, "range"), now, "; ".join(filter(None, notes))


def _facts(table: SymbolTable) -> list[tuple[str, list[Fact]]]:
    return [
        ("guards", table.guards),
        ("deferred runtime asserts", table.asserts),
        ("known to be 0", table.divisible),
    ]


def _print_facts(
    log: CompileEventLog, by_seq: dict[int, Event], title: str, facts: list[Fact]
) -> None:
    if not facts:
        return
    made = streams.table(title, "user's line", "event")
    for fact in facts:
        place = _line(log, by_seq, fact.seq)
        streams.add_row(made, spelling.size(fact.expr), place, f"@{fact.seq}")
    streams.result()
    streams.show(made)


def _line(log: CompileEventLog, by_seq: dict[int, Event], seq: int) -> str:
    line = line_at(log, by_seq[seq]) if seq in by_seq else None
    return f"{line.file}:{line.line} in {line.name}" if line else ""


def _others(log: CompileEventLog, env: int) -> list[int]:
    return [made.env for _, made in log.typed(ShapeEnvCreate) if made.env != env]


def _table_json(log: CompileEventLog, events: Sequence[Event], table: SymbolTable) -> Json:
    by_seq = {event.seq: event for event in events}
    return {
        "address": log.address,
        "env": table.env,
        "at": table.at,
        "frozen": table.frozen,
        "symbols": [
            {
                "symbol": row.name, "backed": row.backed, "value": cell(row, "hint") or None,
                "range": cell(row, "range") or None,
                "replacement": cell(row, "replacement") or None, "sources": list(row.sources),
                "size_like": row.size_like, "renamed": row.renamed,
                "event": log.place(row.created), "line": _line(log, by_seq, row.created) or None,
            }
            for row in table.symbols.values()
        ],
        **{name: _facts_json(log, by_seq, facts) for name, facts in (
            ("guards", table.guards), ("runtime_asserts", table.asserts),
            ("divisible", table.divisible),
        )},
    }  # fmt: skip


def _facts_json(log: CompileEventLog, by_seq: dict[int, Event], facts: Sequence[Fact]) -> Json:
    return [
        {
            "expression": spelling.size(fact.expr), "note": fact.note or None,
            "event": log.place(fact.seq), "line": _line(log, by_seq, fact.seq) or None,
        }
        for fact in facts
    ]  # fmt: skip


# -- two events -----------------------------------------------------------------------------------


def shapes_diff(
    store: Store, address: Address, pair: tuple[int, int], env: int | None, json: bool
) -> None:
    """Print the changes of the symbol table between two events."""
    log = CompileEventLog(store, compile_of(store, address))
    events = shape_events(log, env)
    _require_event(store, log, *pair)
    first, last = sorted(pair)
    found = differences(symbol_table(events, first), symbol_table(events, last), events)
    rows = [_difference_row(log, events, each) for each in found]
    if json:
        listing.write_json([dict(row) for row in rows])
    else:
        _print_diff(log, rows, first, last)
    lost.say_lost(store, address)
    streams.next_command("torchreel", "shapes", f"{log.address}@{last}")


def _print_diff(log: CompileEventLog, rows: Sequence[listing.Row], first: int, last: int) -> None:
    changes = count(len(rows), "change")
    streams.result(f"{log.address}: from event {first} to {last}, {changes}", style="bold")
    made = streams.table("what", f"at {first}", f"at {last}", "user's line", "event")
    for row in rows:
        streams.add_row(made, *row.values())
    if rows:
        streams.show(made)


def _difference_row(
    log: CompileEventLog, events: Sequence[Event], found: ShapeDifference
) -> listing.Row:
    by_seq = {event.seq: event for event in events}
    return {
        "what": found.what, "before": found.before, "after": found.after,
        "line": None if found.seq is None else _line(log, by_seq, found.seq) or None,
        "event": None if found.seq is None else log.place(found.seq),
    }  # fmt: skip

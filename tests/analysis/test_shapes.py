"""The symbol table read as data is the ShapeEnv that torch had, after every event."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sympy

import torchreel
from tests.analysis import programs
from tests.store import rows
from torchreel.analysis.differences import differences
from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.shapes import SymbolTable, shape_events, symbol_table, walk
from torchreel.analysis.why.steps import sentence_or_kind
from torchreel.errors import DamagedStore, UnsupportedError, UsageError
from torchreel.formats import symbols
from torchreel.formats.sources import decode_source, expand_source
from torchreel.replay.shape_env.rebuild import rebuild
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event
from torchreel.torch_compat.shapes import ShapeEnv


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A recording of every program."""
    path: Path = tmp_path_factory.mktemp("history") / "run.db"
    with torchreel.record(path):
        programs.run()
    with Store.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def logs(store: Store) -> list[CompileEventLog]:
    """The event log of each compile that has a ShapeEnv: one hit the recompile limit before."""
    found = [CompileEventLog(store, row) for row in queries.compiles(store, 1)]
    own = [log for log in found if log.of("shape_env.create")]
    assert len(found) - len(own) == 1
    return own


def expr(text: Any, env: ShapeEnv) -> sympy.Basic | None:
    known = {**env.var_to_range, **env.backed_var_to_val}
    return None if text is None else symbols.decode_expr(text, {s.name: s for s in known})


def same(table: SymbolTable, env: ShapeEnv) -> None:
    """Whether the table says what the ShapeEnv holds."""
    assert set(table.symbols) == {str(s) for s in (*env.var_to_range, *env.backed_var_to_val)}
    for symbol in (*env.var_to_range, *env.backed_var_to_val):
        row = table.symbols[symbol.name]
        limits = env.var_to_range.get(symbol)
        found = None if row.range is None else tuple(expr(bound, env) for bound in row.range)
        assert found == (None if limits is None else (limits.lower, limits.upper))
        assert expr(row.replacement, env) == env.replacements.get(symbol)
        hint = env.backed_var_to_val.get(symbol)
        assert expr(row.hint, env) == hint
        assert row.sources == tuple(s.name for s in env.var_to_sources.get(symbol, ()))
        assert row.size_like == (symbol in env.size_like)
    assert [expr(fact.expr, env) for fact in table.guards] == [g.expr for g in env.guards]
    deferred = [row.expr for rows in env.deferred_runtime_asserts.values() for row in rows]
    assert {expr(fact.expr, env) for fact in table.asserts} == set(deferred)
    assert {expr(fact.expr, env) for fact in table.divisible} == set(env.divisible)
    assert table.frozen == env.frozen


def test_the_table_is_the_shape_env_at_every_event(logs: list[CompileEventLog]) -> None:
    compared = 0
    for log in logs:
        events = shape_events(log)
        for event in events:
            same(symbol_table(events, event.seq), rebuild(events, event.seq))
            compared += 1
    assert compared > 200


def test_walking_gives_the_same_tables(logs: list[CompileEventLog]) -> None:
    events = shape_events(logs[0])
    for event, table in walk(events):
        assert table == symbol_table(events, event.seq)


def test_an_event_of_another_system_is_a_moment_as_well(logs: list[CompileEventLog]) -> None:
    """Between two events of the ShapeEnv it is as after the first."""
    events = shape_events(logs[0])
    gaps = [(a, b) for a, b in itertools.pairwise(events) if b.seq - a.seq > 1]
    assert gaps
    for before, after in gaps:
        table = symbol_table(events, after.seq - 1)
        assert replace(table, at=before.seq) == symbol_table(events, before.seq)


def test_before_there_was_a_shape_env(logs: list[CompileEventLog]) -> None:
    events = shape_events(logs[0])
    with pytest.raises(UsageError, match="begins with event"):
        symbol_table(events, events[0].seq - 1)


def test_the_differences_add_up_to_the_table(logs: list[CompileEventLog]) -> None:
    """What each event changed, taken together, names every symbol, replacement and guard."""
    for log in logs:
        events = shape_events(log)
        tables = [symbol_table(events, event.seq) for event in events]
        found = [
            change
            for before, after in itertools.pairwise(tables)
            for change in differences(before, after, events)
        ]
        last = tables[-1]
        assert {c.what for c in found} >= set(last.symbols)
        replaced = {f"{n} replacement" for n, row in last.symbols.items() if row.replacement}
        assert {c.what for c in found} >= replaced
        assert sum(c.what == "guard" for c in found) == len(last.guards)
        assert differences(last, last, events) == []


def test_each_change_names_the_event_that_made_it(logs: list[CompileEventLog]) -> None:
    events = shape_events(logs[0])
    by_seq = {event.seq: event for event in events}
    found = differences(symbol_table(events, events[0].seq), symbol_table(events), events)
    kinds = {by_seq[change.seq].kind for change in found if change.seq is not None}
    assert kinds == {"shape_env.symbol", "shape_env.guard"}


def test_of_several_shape_envs_the_checkpoints_is_meant(tmp_path: Path) -> None:
    """Another one may have more events: that of a nested trace, for one."""
    setting = {"settings": {}, "validation": False}
    kinds = [
        ("shape_env.create", {"env": 1, **setting}), ("shape_env.create", {"env": 2, **setting}),
        ("unbacked.create", {"env": 2, "symbol": "u0", "range": None}),
        ("shape_env.checkpoint", {"env": 1}), ("unbacked.size_like", {"env": 2, "symbol": "u0"}),
    ]  # fmt: skip
    with Store.open(tmp_path / "two.db", create=True) as store:
        with store.writer() as writer:
            recording = rows.add_recording(writer)
            compile = rows.add_compile(writer, recording)
            for seq, (kind, data) in enumerate(kinds, 1):
                columns = {"compile_id": compile, "kind": kind, "data": data}
                rows.add_event(writer, recording, seq, **columns)
        log = CompileEventLog(store, queries.compiles(store, recording)[0])
        assert symbol_table(shape_events(log)).env == 1
        other = symbol_table(shape_events(log, 2))
        assert (other.env, other.symbols["u0"].size_like) == (2, True)


# -- names ----------------------------------------------------------------------------------------


def test_sources_are_spelled_as_torch_spells_them(
    store: Store, logs: list[CompileEventLog]
) -> None:
    found = [
        expand_source(rows, place)
        for log in logs
        for event in log.of("guards.sources")
        if isinstance(event.data, dict) and isinstance(rows := event.data["rows"], list)
        for place in range(len(rows))
    ]
    found += [
        source
        for log in logs
        for event in log.of("shape_env.symbol")
        if isinstance(event.data, dict)
        for source in event.data["sources"] or ()
    ]
    kinds = set()
    for data in found:
        source = decode_source(data)
        assert source is not None
        kinds.add(type(source).__name__)
        assert source_name(data) == source.name
    assert kinds >= {"LocalSource", "TensorPropertySource", "GlobalSource", "AttrSource"}


# -- data from a stranger -------------------------------------------------------------------------


def broken(event: Event) -> Iterator[Event]:
    """The event with each field missing, or of another type."""
    assert isinstance(event.data, dict)
    for name in event.data:
        yield replace(event, data={k: v for k, v in event.data.items() if k != name})
        for value in (None, 7, "x", [], {}, [[1]], {"put": 3}):
            yield replace(event, data={**event.data, name: value})
    yield replace(event, data=None)
    yield replace(event, data=[1])


def test_a_malformed_event_is_an_error_on_purpose_or_none(logs: list[CompileEventLog]) -> None:
    seen, refused = set(), 0
    for log in logs:
        events = shape_events(log)
        for number, event in enumerate(events):
            if event.kind in seen:
                continue
            seen.add(event.kind)
            for bad in broken(event):
                sentence_or_kind(bad)
                try:
                    symbol_table([*events[:number], bad, *events[number + 1 :]])
                except (UnsupportedError, DamagedStore, UsageError):
                    refused += 1
    assert refused > 100
    assert len(seen) >= 8


def test_a_missing_event_is_noticed(logs: list[CompileEventLog]) -> None:
    """What a symbol becomes can't be told without the event that made it."""
    (events,) = [shape_events(log) for log in logs if log.compile.frame_name == "tied"]
    first = next(event for event in events if event.kind == "shape_env.symbol")
    with pytest.raises((DamagedStore, UnsupportedError)):
        symbol_table([event for event in events if event is not first])


@pytest.mark.parametrize("prop", ["{:>99999999999}", "{0.real}", "{", "{1}"])
def test_a_strangers_text_is_no_format(prop: str) -> None:
    base = {"source": "LocalSource", "local_name": "x"}
    data: Json = {"source": "TensorPropertySource", "base": base, "prop": {"name": prop}, "idx": 0}
    assert source_name(data) == f"L['x'].{prop}"

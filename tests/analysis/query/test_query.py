"""One SELECT over the views of a store: what it finds, and what it can't do."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch._inductor.utils import fresh_cache

import torchreel
from tests.cli.stores import failing
from tests.store.rows import add_compile, add_event, add_recording
from torchreel.analysis.query.query import Cell, query
from torchreel.analysis.query.views import VIEWS, QueryScope
from torchreel.errors import DamagedStore, QueryTimeSpent, UsageError
from torchreel.store import Store, queries


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with a graph break, a recompile, dynamic sizes, a kernel and a cache."""

    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x.sin() * n
        torch._dynamo.graph_break()
        return y.sum(-1) + x.size(0)

    path = tmp_path_factory.mktemp("query") / "run.db"
    torch._dynamo.reset()
    with fresh_cache(), torchreel.record(path):
        compiled = torch.compile(program)
        compiled(torch.ones(4, 8), 3)
        compiled(torch.ones(5, 8), 3)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened


def ask(store: Store, statement: str, **limits: float) -> list[tuple[Cell, ...]]:
    return list(query(QueryScope(store), statement, **limits).rows)


# -- what is found --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("view", [name for name in VIEWS if name != "failures"])
def test_every_view_has_rows_of_a_real_recording(store: Store, view: str) -> None:
    found = query(QueryScope(store), f"SELECT * FROM {view}")
    assert found.columns == tuple(VIEWS[view].columns)
    assert found.rows
    places = {row.place for row in queries.compiles(store, 1)}
    assert {row[0] for row in found.rows} <= places


def test_values_have_the_types_of_their_columns(store: Store) -> None:
    types = {"INTEGER": int, "REAL": float, "TEXT": str}
    for view in VIEWS.values():
        for row in ask(store, f"SELECT * FROM {view.name}"):
            for column, value in zip(view.columns.items(), row, strict=True):
                assert value is None or type(value) is types[column[1]], (view.name, column)
                if value is None:
                    assert "None" in str(view.row.__annotations__[column[0]]), (view.name, column)


def test_nodes_are_those_of_the_graphs(store: Store) -> None:
    counts = ask(store, "SELECT compile, stage, partition, ordinal, count(*) FROM graph_nodes "
                 "WHERE module = '' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4")  # fmt: skip
    wanted = [
        (row.place, graph.stage, graph.partition, graph.ordinal, graph.nodes)
        for row in queries.compiles(store, 1)
        for graph in queries.graphs(store, row)
    ]
    assert counts == sorted(wanted)
    ((code,),) = ask(store, "SELECT code FROM graph_nodes WHERE target = 'sin' AND sizes = '[4,8]' "
                     "AND stage = 'dynamo'")  # fmt: skip
    assert code == "sin: float32[4, 8] = l_x_.sin()"


def test_guards_symbols_and_breaks_say_which_line(store: Store) -> None:
    here = Path(__file__).name
    for statement in (
        "SELECT file FROM graph_breaks",
        "SELECT file FROM symbols WHERE backed",
        "SELECT file FROM guards WHERE type = 'TENSOR_MATCH'",
    ):
        found = ask(store, statement)
        assert found
        assert {Path(str(file)).name for (file,) in found} == {here}
    ((sources, low),) = ask(store, "SELECT sources, low FROM symbols LIMIT 1")
    assert json.loads(str(sources)) == ["L['x'].size()[0]"]
    assert low == "2"


def test_a_range_without_an_end_is_spelled_as_in_shapes(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * x[0].item()

    torch._dynamo.reset()
    patched = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with torchreel.record(tmp_path / "run.db"), patched:
        torch.compile(scaled, backend="eager")(torch.tensor([2, 3]))
    with Store.open(tmp_path / "run.db") as store:
        found = ask(store, "SELECT low, high FROM symbols WHERE symbol = 'u0'")
    assert found == [("-oo", "oo")]


def test_a_recompile_says_which_guard_failed(store: Store) -> None:
    reasons = ask(store, "SELECT reason FROM recompiles")
    assert all("size mismatch" in str(reason) for (reason,) in reasons)


def test_views_join_and_tables_of_the_file_are_there(store: Store) -> None:
    ((joined,),) = ask(store, "SELECT count(*) FROM stages JOIN compiles USING (compile)")
    ((raw,),) = ask(store, "SELECT count(*) FROM main.stages")
    assert joined == raw


def test_a_scope_narrows_every_view(store: Store) -> None:
    one = queries.compiles(store, 1)[0]
    for view in VIEWS:
        found = query(QueryScope(store, 1, one), f"SELECT DISTINCT compile FROM {view}")
        assert set(found.rows) <= {(one.place,)}
    assert query(QueryScope(store, 1, one), "SELECT * FROM compiles").rows


def test_only_the_views_that_are_named_are_filled(store: Store) -> None:
    ((count,),) = ask(store, "SELECT count(*) FROM sqlite_temp_master")
    assert count == len(VIEWS)
    found = ask(store, "WITH guards AS (SELECT 1 AS x) SELECT x FROM guards")
    assert found == [(1,)]


def test_columns_of_one_name_are_numbered(store: Store) -> None:
    found = query(QueryScope(store), "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a")
    assert found.columns == ("a", "a_2", "a_2_2", "a_3")


def test_failures_are_there_as_well(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    with Store.open(failing(path)) as store:
        found = ask(store, "SELECT compile, torch, stage, place FROM failures")
    assert found == [("1/0/1", "2.13.0", "lowering", "torch._inductor.lowering:scatter")]


# -- what a statement can't do --------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO main.compiles (id) VALUES (99)",
        "INSERT INTO compiles VALUES (1)",
        "UPDATE main.recordings SET status = 'x'",
        "DELETE FROM main.failures",
        "CREATE TABLE mine (a)",
        "CREATE TEMP VIEW mine AS SELECT 1",
        "DROP TABLE temp.failures",
        "ATTACH '{other}' AS other",
        "VACUUM INTO '{other}'",
        "PRAGMA query_only = OFF",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "BEGIN",
        "COMMIT",
        "REINDEX",
        "ANALYZE",
        "DETACH main",
    ],
)
def test_it_only_reads(path: Path, tmp_path: Path, statement: str) -> None:
    copy, other = tmp_path / "run.db", tmp_path / "other.db"
    shutil.copy(path, copy)
    before = copy.read_bytes()
    with Store.open(copy) as store, pytest.raises(UsageError, match="does more than read"):
        ask(store, statement.format(other=other))
    assert copy.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.db"]


@pytest.mark.parametrize(
    "statement",
    ["SELEC", "", "SELECT 1; SELECT 2", "SELECT * FROM nowhere", "SELECT zeroblob(1e9)"],
)
def test_what_is_no_statement_is_told(store: Store, statement: str) -> None:
    with pytest.raises(UsageError, match=r"SQLite does not understand .*The views are compiles, "):
        ask(store, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT max(a) FROM t",
        "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT a FROM t "
        "WHERE a < 0",
    ],
)
def test_a_statement_without_end_is_ended(store: Store, statement: str) -> None:
    with pytest.raises(QueryTimeSpent, match=r"ended after 0\.2 s"):
        ask(store, statement, seconds=0.2)


def test_a_file_can_t_put_tables_in_the_place_of_views(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run.db"
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as raw:
        raw.executescript("CREATE TABLE guards(compile); INSERT INTO guards VALUES ('hostile')")
    with Store.open(copy) as store:
        assert ("hostile",) not in ask(store, "SELECT compile FROM guards")
        assert ask(store, "SELECT compile FROM main.guards") == [("hostile",)]


def test_text_that_is_no_utf_8_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.open(path, create=True) as store, store.writer() as w:
        number = add_recording(w)
        row = add_compile(w, number)
        add_event(w, number, 1, compile_id=row, kind="frame.graph_break", data='{"type":"\\ud800"}')
    with Store.open(path) as store:
        assert ask(store, "SELECT type FROM graph_breaks") == [("\\ud800",)]


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -5.0])
def test_a_time_limit_is_a_time(store: Store, seconds: float) -> None:
    with pytest.raises(UsageError, match="a number of seconds above 0"):
        ask(store, "SELECT 1", seconds=seconds)


def test_filling_a_view_has_no_more_time_than_the_statement(store: Store) -> None:
    with pytest.raises(QueryTimeSpent, match=r"ended after 1e-06 s"):
        ask(store, "SELECT count(*) FROM guards", seconds=1e-6)


def test_rows_are_cut_where_they_would_fill_the_memory(store: Store) -> None:
    many = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t LIMIT 2000) "
    found = query(QueryScope(store), f"{many} SELECT zeroblob(1000000) FROM t")
    assert found.is_cut
    assert 200 < len(found.rows) < 300
    assert not query(QueryScope(store), f"{many} SELECT a FROM t").is_cut


def test_json_can_be_taken_apart(store: Store) -> None:
    found = ask(store, "SELECT DISTINCT s.value FROM symbols, json_each(symbols.sources) AS s")
    assert ("L['x'].size()[0]",) in found
    assert ask(store, "SELECT value FROM json_tree('[7]') WHERE atom = 7") == [(7,)]


def test_a_damaged_page_is_the_file_s_fault(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run.db"
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'stages'").fetchone()
    with copy.open("r+b") as file:
        file.seek((page - 1) * 512)
        file.write(b"\xff" * 512)
    with Store.open(copy) as store, pytest.raises(DamagedStore, match="is damaged"):
        ask(store, "SELECT count(*) FROM main.stages")

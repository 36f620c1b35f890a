"""`torchreel query`, on a store that is written row by row."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing

NODES = "SELECT number, target FROM graph_nodes WHERE op = 'call_function' ORDER BY number"


def test_each_format_has_the_rows(run: Run, empty: Path) -> None:
    path = failing(empty)
    rows = [
        {"number": 1, "target": "fn:_operator.add"},
        {"number": 2, "target": "op:aten.relu.default"},
    ]
    table = run("query", path, NODES)
    assert table.status == 0, table
    assert [line.split() for line in table.out.splitlines()] == [
        ["number", "target"], ["1", "fn:_operator.add"], ["2", "op:aten.relu.default"],
    ]  # fmt: skip
    assert json.loads(run("query", path, NODES, "--format", "json").out) == rows
    for short, name in (("--json", "json"), ("--nl", "ndjson"), ("--csv", "csv")):
        by_name = run("query", path, NODES, "--format", name).out
        assert run("query", path, NODES, short).out == by_name
    assert run("query", path, NODES, "--json", "--csv").status == 2
    assert run("query", path, NODES, "--json", "--format", "csv").status == 2
    lines = run("query", path, NODES, "--format", "ndjson").out.splitlines()
    assert [json.loads(line) for line in lines] == rows
    found = run("query", path, NODES, "--format", "csv").out.splitlines()
    assert list(csv.DictReader(found)) == [{k: str(v) for k, v in row.items()} for row in rows]


@pytest.mark.parametrize(
    ("kind", "printed"), [("table", "a, b\n"), ("csv", "a,b\n"), ("json", "[]\n"), ("ndjson", "")]
)
def test_without_rows_there_are_columns(run: Run, empty: Path, kind: str, printed: str) -> None:
    result = run("query", empty, "SELECT 1 AS a, 2 AS b WHERE 0", "--format", kind)
    assert (result.status, result.out) == (0, printed)


def test_values_that_json_lacks_have_a_form(run: Run, empty: Path) -> None:
    result = run("query", empty, "SELECT x'00ff' AS a, 9e999 AS b, NULL AS c", "--format", "json")
    assert json.loads(result.out) == [{"a": "00ff", "b": "inf", "c": None}]


def test_an_address_narrows_it(run: Run, empty: Path) -> None:
    path = failing(empty)
    count = "SELECT count(*) AS n FROM compiles"
    assert run("query", path, count, "--format", "csv").out == "n\n2\n"
    assert run("query", f"{path}#1/0/1", count, "--format", "csv").out == "n\n1\n"
    assert run("query", f"{path}#9", count).status == 2


def test_what_is_wrong_is_told(run: Run, empty: Path) -> None:
    result = run("query", empty, "DELETE FROM main.compiles")
    assert (result.status, result.out) == (2, "")
    assert result.err == "usage: The statement does more than read: only a SELECT is run.\n"
    assert run("query", empty, "SELECT 1", "--format", "xml").status == 2
    endless = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a FROM t) SELECT max(a) FROM t"
    result = run("query", empty, endless, "--limit-time", "0.1")
    assert result.status == 4
    assert "ended after 0.1 s" in result.err


def test_an_address_that_names_nothing_is_told(run: Run, empty: Path) -> None:
    path = failing(empty)
    for place in ("#9", "#1/7/7", "#1/0/1_9", "#1@999999", "#1/0/1@999999"):
        result = run("query", f"{path}{place}", "SELECT 1")
        assert (result.status, result.out) == (2, ""), place


def test_a_table_is_shorter_than_what_was_found(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchreel.commands.views.query.MOST_IN_TABLE", 3)
    many = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t LIMIT 9) SELECT a FROM t"
    result = run("query", empty, many, "--format", "json")
    assert [row["a"] for row in json.loads(result.out)] == list(range(1, 10))
    result = run("query", empty, many)
    assert result.out.split() == ["a", "1", "2", "3"]
    assert "A table has the first 3 rows of 9 rows" in result.err


def test_a_huge_text_has_only_its_beginning_in_a_table(run: Run, empty: Path) -> None:
    huge = "SELECT replace(hex(zeroblob(400000)), '00', 'ab') AS a"
    result = run("query", empty, huge)
    assert "... and 790000 characters more" in result.out.replace("\n", " ").replace("  ", " ")
    assert len(run("query", empty, huge, "--format", "csv").out) > 800_000


@pytest.mark.parametrize(
    ("value", "cell"),
    [("-oo", "-oo"), ("+1.5", "+1.5"), ("-1+cmd|x", "'-1+cmd|x"), ("=A1", "'=A1")],
)
def test_a_sign_before_a_word_is_no_formula(run: Run, empty: Path, value: str, cell: str) -> None:
    result = run("query", empty, f"SELECT '{value}' AS a", "--csv")
    assert result.out.splitlines() == ["a", cell]

"""`torchreel diff`: what is printed, the exit statuses, and that a hostile store is only read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import GRAPH, TENSOR, failing, graph, node
from tests.cli.test_stranger import DEEP, EVIL, HOSTILE, WATCHED
from tests.store.rows import add_compile, add_graph, add_recording
from torchreel.store import Json, Store

VALUE: dict[str, Json] = {**TENSOR, "size": ["s9", 8]}
OTHER = graph(
    node("arg0", "placeholder", "arg0", val=VALUE),
    node("plus", "call_function", "fn:_operator.add", {"n": "arg0"}, 2, val=VALUE),
    node("out", "call_function", "op:aten.relu.default", {"n": "plus"}, val=VALUE),
    node("output", "output", "output", {"t": [{"n": "out"}]}),
)  # fmt: skip


@pytest.fixture
def two(empty: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Two stores that differ in the literal of a node, and in a compile."""
    other = tmp_path / "other.db"
    Store.open(other, create=True).close()
    failing(empty, GRAPH)
    failing(other, OTHER)
    with Store.open(other, write=True) as store, store.writer() as w:
        add_compile(w, 1, "1/0", frame_name="g")
    return empty, other


def test_a_store_against_itself_has_no_difference(run: Run, empty: Path) -> None:
    failing(empty)
    result = run("diff", empty, empty)
    assert result.status == 0
    assert result.out.endswith("no differences\n")
    assert result.err.endswith(f"next: torchreel show {empty}#1/0/0\n")
    assert f"note: {empty}#1 lost 3 of guards: no portable form" in result.err


def test_the_first_difference_of_each_layer_is_shown_side_by_side(
    run: Run, two: tuple[Path, Path]
) -> None:
    result = run("diff", *two)
    assert result.status == 1
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "graphs 1 1 1" in lines
    (shown,) = [line for line in lines if line.startswith("graphs: dynamo: node add")]
    assert shown.endswith(
        "add: float32[s0, 8] requires_grad = x + 1 plus: float32[s9, 8] requires_grad = arg0 + 2"
    )
    assert f"only on the right: {two[1]}#1/1/0" in lines
    assert lines[-1] == "1 compile of 2 differ"
    assert result.err.endswith(f"next: torchreel show {two[0]}#1/0/1\n")


def test_two_compiles_and_some_layers(run: Run, two: tuple[Path, Path]) -> None:
    sides = [f"{path}#1/0/1" for path in two]
    assert run("diff", *sides, "--only", "config,failure").status == 0
    assert run("diff", *sides, "--only", "config, graphs").status == 1


def test_the_same_as_json(run: Run, two: tuple[Path, Path]) -> None:
    result = run("diff", *two, "--json")
    found = json.loads(result.out)
    assert (result.status, found["same"]) == (1, False)
    assert found["recordings"][0]["only_right"] == [f"{two[1]}#1/1/0"]
    layers = found["recordings"][0]["compiles"][1]["layers"]
    assert [layer["layer"] for layer in layers if layer["differences"]] == ["graphs"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("diff", "A"), "between two addresses, not 1"),
        (("diff", "A", "A", "--only", "graph"), "There is no layer 'graph'"),
        (("diff", "A", "A", "--only", "code,guards", ), None),
        (("diff", "--ranks", "A"), "no rank of a job"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(
    run: Run, empty: Path, words: tuple[str, ...], message: str | None
) -> None:
    failing(empty)
    result = run(*(str(empty) if word == "A" else word for word in words))
    assert result.status == (0 if message is None else 2)
    assert message is None or message in result.err


def test_nothing_to_compare_is_no_agreement(run: Run, empty: Path) -> None:
    result = run("diff", empty, empty)
    assert result.status == 2
    assert "no compile in it" in result.err
    with Store.open(empty, write=True) as store, store.writer() as w:
        add_compile(w, add_recording(w))
    result = run("diff", empty, empty, "--only", "graphs")
    assert result.status == 2
    assert "nothing was compared" in result.err


def test_ranks_that_compile_other_frames(run: Run, empty: Path) -> None:
    with Store.open(empty, write=True) as store, store.writer() as w:
        for rank, names in enumerate((("f", "g"), ("f", "h"), ("f",))):
            recording = add_recording(w, rank=rank)
            for number, name in enumerate(names):
                row = add_compile(w, recording, f"{number}/0", frame_name=name, started_ns=number)
                add_graph(w, row, digest=w.blob(GRAPH))
    result = run("diff", "--ranks", empty)
    assert result.status == 1
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "the ranks part at a compile, after 1 compile and 0 decisions alike" in lines
    assert lines[-3:] == [
        f"0 {empty}#1/1/0 1/0 g (m.py:3)", f"1 {empty}#2/1/0 1/0 h (m.py:3)", "2 (nothing)",
    ]  # fmt: skip
    assert result.err == f"next: torchreel show {empty}#1/1/0\n"


def watched(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WATCHED, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("options", [(), ("--all",), ("--json",)], ids=["first", "all", "json"])
@pytest.mark.parametrize("document", [HOSTILE, DEEP + b"}]}", b"[[["], ids=["evil", "deep", "cut"])
def test_a_hostile_store_is_only_read(
    empty: Path, tmp_path: Path, document: bytes, options: tuple[str, ...]
) -> None:
    other = tmp_path / "other.db"
    Store.open(other, create=True).close()
    failing(empty)
    failing(other, document, frame_name=EVIL, frame_file=EVIL, backend=EVIL)
    result = watched("diff", f"{empty}#1/0/1", f"{other}#1/0/1", *options)
    assert result.returncode in (1, 3), result.stderr
    assert "Traceback" not in result.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout + result.stderr)

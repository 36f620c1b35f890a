"""`torchreel show`: the overview and each of its parts."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing
from torchreel.store import Store, queries


@pytest.fixture
def store(empty: Path) -> Path:
    return failing(empty)


def test_the_overview_tells_all_that_is_known(run: Run, store: Path) -> None:
    result = run("show", store)
    assert result.status == 0
    told = " ".join(result.out.split())
    for fact in (
        f"{store}#1/0/1 failed",
        "frame f m.py:3",
        "dynamo ok 1.5 s",
        "lowering inference failed",
        "graph partition inputs call nodes nodes outputs dynamo 1 2 4 1",
        "checkpoints: graph",
        "failure: exception in stage lowering inference",
        "LoweringException: KeyError: no such key",
        "types LoweringException <- KeyError",
        "frame torch._inductor.lowering:scatter",
        "inductor.max_fusion_size 1",
        "torch 2.13.0",
        "3 guards no portable form opaque",
    ):
        assert fact in told, fact
    assert result.err == f"next: torchreel minify {store}#1/0/1\n"


def test_a_message_does_not_repeat_the_exception_that_it_was_raised_for(
    run: Run, store: Path
) -> None:
    """Dynamo puts what a backend raised into the message of its own exception."""
    chain = [
        {"type": "BackendCompilerFailed", "message": "backend='mine' raised:"},
        {"type": "RuntimeError", "message": "no sin here"},
    ]
    message = "backend='mine' raised:\nRuntimeError: no sin here\nand more of it"
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE failures SET chain = ?, message = ?", (json.dumps(chain), message)
        )
    out = run("show", store).out
    assert out.count("RuntimeError: no sin here") == 1
    assert "    and more of it\n" in out


def test_a_long_message_ends_with_the_lines_of_the_program(run: Run, store: Path) -> None:
    user = ["from user code:", '  File "train.py", line 9, in step', "    return model(x)"]
    advice = "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace"
    message = ["What it is", *(f"reason {n}" for n in range(30)), *user, advice, "+dynamo"]
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE failures SET message = ?", ("\n".join(message),))
    out = run("show", store).out
    assert "    reason 10\n" in out
    assert "reason 11" not in out
    assert "\n".join(f"    {line}" for line in user) in out
    assert "(19 more lines: --traceback shows all)" in out
    assert "TORCHDYNAMO_VERBOSE" not in out


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE failures SET stage = 'guards'",
        "DELETE FROM checkpoints",
        "UPDATE checkpoints SET digest = :own",
    ],
    ids=["a failure of Dynamo's", "a frame alone", "a backend of the program's"],
)
def test_what_only_runs_with_trust_is_named_with_it(run: Run, store: Path, change: str) -> None:
    with Store.open(store, write=True) as opened, opened.writer() as w:
        own = w.blob(b'{"extra": {"backend": "passes:Rewriter"}}')
        (row,) = [row for row in queries.compiles(opened, 1) if row.status == "failed"]
        columns = {"status": "complete", "reason": "", "digest": w.blob(b"pickle"), "size": 6}
        w.add("frame_bundles", compile_id=row.id, **columns)
    assert run("show", store).err == f"next: torchreel minify {store}#1/0/1\n"
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(change, {"own": own} if ":own" in change else {})
    assert run("show", store).err == f"next: torchreel minify {store}#1/0/1 --trust\n"


def test_a_compile_that_did_not_fail_has_something_else_next(run: Run, store: Path) -> None:
    result = run("show", f"{store}#1/0/0")
    assert result.status == 0
    assert "failure:" not in result.out
    assert result.err == f"next: torchreel show {store}#1/0/0 --events\n"


def test_a_graph_is_printed_as_python(run: Run, store: Path) -> None:
    assert run("show", store, "--graph", "dynamo").out.splitlines() == [
        "# dynamo, 2 call nodes",
        "input x: float32[s0, 8] requires_grad",
        "add: float32[s0, 8] requires_grad = x + 1",
        "relu: float32[s0, 8] requires_grad = torch.ops.aten.relu.default(add)",
        "return (relu,)",
    ]


def test_a_stage_without_a_graph_names_those_with_one(run: Run, store: Path) -> None:
    result = run("show", store, "--graph", "joint")
    assert result.status == 2
    assert "it has dynamo" in result.err


def test_code_traceback_and_events_are_printed(run: Run, store: Path) -> None:
    assert "def call(): ..." in run("show", store, "--code").out
    assert "KeyError: no such key" in run("show", store, "--traceback").out
    listed = run("show", store, "--events")
    assert f"{store}#1/0/1@1" in listed.out
    assert "some artifact" in run("show", f"{store}#1@1").out


def test_the_same_as_json(run: Run, store: Path) -> None:
    shown = json.loads(run("show", store, "--json").out)
    assert shown["compile"]["frame_name"] == "f"
    assert shown["failure"]["signature"]["exception_types"] == ["LoweringException", "KeyError"]
    assert [stage["stage"] for stage in shown["stages"]] == ["dynamo", "lowering"]
    assert shown["config"][0]["key"] == "max_fusion_size"


@pytest.mark.parametrize("option", ["--code", "--traceback"])
def test_what_is_not_there_is_said(run: Run, store: Path, option: str) -> None:
    result = run("show", f"{store}#1/0/0", option)
    assert (result.status, result.out) == (2, "")
    assert "Compile 1/0/0" in result.err


def test_a_stage_stands_below_the_one_that_its_time_is_a_part_of(run: Run, store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        (compile_id,) = connection.execute("SELECT max(id) FROM compiles").fetchone()
        connection.execute("DELETE FROM stages WHERE compile_id = ?", (compile_id,))
        connection.executemany(
            "INSERT INTO stages (compile_id, stage, partition, started_ns, ended_ns, status) "
            "VALUES (?, ?, '', ?, ?, ?)",
            [
                (compile_id, "dynamo", 0, 90, "ok"),
                (compile_id, "pre_grad", 10, 80, "ok"),
                (compile_id, "joint", 20, 30, "ok"),
                (compile_id, "forward", 40, 70, "ok"),
                (compile_id, "guards", 90, 95, "ok"),
                (compile_id, "run", 100, None, "open"),
                (compile_id, "backward", 110, None, "open"),
            ],
        )
    lines = run("show", store).out.splitlines()
    begins = lines.index("stages") + 2
    shown = [re.split(" +(ok|open)", line)[0] for line in lines[begins : begins + 7]]
    assert shown == [
        "dynamo", "  pre_grad", "    joint", "    forward", "guards", "run", "  backward",
    ]  # fmt: skip


def test_parts_as_json(run: Run, store: Path) -> None:
    (graph,) = json.loads(run("show", store, "--graph", "dynamo", "--json").out)
    assert (graph["stage"], "relu" in graph["text"]) == ("dynamo", True)
    (code,) = json.loads(run("show", store, "--code", "--json").out)
    assert code == {"stage": "output_code", "partition": "", "text": "def call(): ..."}
    (traceback,) = json.loads(run("show", store, "--traceback", "--json").out)
    assert traceback["stage"] == "lowering"
    assert "KeyError: no such key" in traceback["text"]
    assert run("show", store, "--graph", "joint", "--json").status == 2


def test_an_event_has_no_parts(run: Run, store: Path) -> None:
    for option in ("--code", "--graph=dynamo", "--events", "--traceback"):
        result = run("show", f"{store}#1@1", option)
        assert (result.status, result.out) == (2, "")
        assert f"{option.partition('=')[0]} is a part of a compile" in result.err

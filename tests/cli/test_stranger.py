"""A store made by a stranger is data: listing and showing it executes nothing.

Run in processes of their own, in which torch can't be imported and an audit hook watches for
anything that runs, opens for writing or connects.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.cli.stores import TENSOR, failing, graph, node
from torchreel.store import Json, Store, canonical_json, queries
from torchreel.store.blobs.pages import write_pages

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
EVIL = f"{ESCAPE}[bold red]boo[/] :skull: __import__('os').system('touch owned') \u202e \x00"
HOSTILE_TENSOR: dict[str, Json] = {
    **TENSOR,
    "size": [f"Pow(9, Pow(9, 99)){EVIL}", "Add(", "(" * 900],
}

HOSTILE = graph(
    node(EVIL, "placeholder", EVIL, val=HOSTILE_TENSOR),
    node("a", "call_function", "fn:os.system", f"touch owned{ESCAPE}"),
    node("b", "call_function", "fn:builtins.eval", "__import__('os').abort()"),
    node("c", "call_method", "__class__", {"n": EVIL}, {"opaque": {"type": EVIL, "reason": EVIL}}),
    node("d", "call_function", f"opaque:{EVIL}", {EVIL: EVIL}, {"f": EVIL}, {"dtype": EVIL}),
    node("e", "get_attr", EVIL),
    node("f", "call_function", 17, {"slice": 3}, {"t": {"n": 4}}, {"d": [1]}),  # type: ignore[arg-type]
    "no node",
    node("output", "output", "output", {"t": [{"n": "a"}]}),
    **{EVIL: {"nodes": [3]}},  # type: ignore[dict-item]
)
DEEP = (
    b'{"nodes":[{"name":"x","op":"call_function","target":"t","args":' + b"[" * 3000 + b"]" * 3000
)
NO_GRAPHS = [b"\x80\x04\x95pickled", b"[[[", b"null", canonical_json({"nodes": {}}), DEEP + b"}]}"]

WATCHED = """
import sys
sys.modules["torch"] = None
def watch(event, arguments):
    if event.startswith(("os.system", "subprocess", "os.exec", "os.posix_spawn", "socket.connect",
                         "pickle.find_class")):
        raise SystemExit(f"forbidden: {event} {arguments}")
    if event in ("exec", "compile") and arguments and isinstance(arguments[0], (str, bytes)):
        if b"owned" in repr(arguments[0]).encode():
            raise SystemExit(f"executed: {arguments}")
from torchreel.cli import main
sys.addaudithook(watch)
main()
"""


def show(path: Path, *options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WATCHED, *options[:1], str(path), *options[1:]]
    where = cwd or path.parent
    return subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=120)


@pytest.mark.parametrize(
    "options",
    [
        ("ls",), ("ls", "--json"), ("ls", "--csv"), ("show",), ("show", "--json"),
        ("show", "--graph", "dynamo"), ("show", "--code"), ("show", "--events"),
        ("show", "--traceback"), ("diff", "run.db"),
    ],
)  # fmt: skip
def test_a_hostile_store_is_shown_as_text(empty: Path, options: tuple[str, ...]) -> None:
    failing(empty, HOSTILE, frame_name=EVIL, frame_file=EVIL, backend=EVIL)
    result = show(empty, *options)
    assert result.returncode == 0, result.stderr
    assert not (empty.parent / "owned").exists()
    for stream in (result.stdout, result.stderr):
        assert "\x1b" not in stream
        assert "\x07" not in stream
        assert "\u202e" not in stream
    if "--json" in options:
        json.loads(result.stdout)


def test_markup_and_emoji_are_not_interpreted(empty: Path) -> None:
    failing(empty, frame_name="[bold red]boo[/] :skull:")
    assert "[bold red]boo[/] :skull:" in show(empty, "ls").stdout


@pytest.mark.parametrize("document", NO_GRAPHS, ids=["pickle", "cut off", "null", "wrong", "deep"])
def test_a_blob_that_is_no_graph(empty: Path, document: bytes) -> None:
    failing(empty, document)
    result = show(empty, "show", "--graph", "dynamo")
    assert result.returncode in (0, 3), result.stderr
    assert "Traceback" not in result.stderr


def test_a_blob_that_is_not_what_its_digest_says(empty: Path) -> None:
    import sqlite3

    failing(empty)
    with sqlite3.connect(empty) as connection:
        connection.execute("UPDATE blobs SET data = x'00'")
    connection.close()
    result = show(empty, "show", "--graph", "dynamo")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A real recompile in which each text of each event goes on as a hostile one: its address."""
    path = tmp_path_factory.mktemp("stranger") / "run.db"
    compiled = torch.compile(lambda x: (torch.relu(x) * x.size(0)).sum(), backend="eager")
    torch._dynamo.reset()
    with torchreel.record(path):
        for size in (3, 4, 5):
            compiled(torch.ones(size, 2))
    changed = 0
    with Store.open(path, write=True) as store, store.writer() as w:
        (recording,) = queries.recordings(store)
        compile = queries.compiles(store, recording.id)[-1]
        for table, place in (("event_pages", "digest"), ("events", "data")):
            rows = w.connection.exec_driver_sql(f"SELECT id, {place} FROM {table}").all()
            for row, found in rows:
                if table == "events":
                    value = canonical_json(owned(json.loads(found))).decode()
                else:
                    value = w.blob(owned_pages(store.read_blob(found)))
                command = f"UPDATE {table} SET {place} = ? WHERE id = ?"
                changed += w.connection.exec_driver_sql(command, (value, row)).rowcount
    assert changed > 5, "next to nothing was changed"
    return path.parent, f"run.db#{compile.place}"


def owned_pages(data: bytes) -> bytes:
    """The same of a blob of pages: one document on each line."""
    assert data.startswith(b"[\n"), "several pages are one blob"
    lines = (line.removesuffix(b",") for line in data.split(b"\n")[1:-1])
    return write_pages([canonical_json(owned(json.loads(line))) for line in lines])


def owned(tree: Any) -> Any:
    """Every text that is no key goes on as something else; a kind of value stays one."""
    if isinstance(tree, dict):
        return {
            k: v if k in ("k", "fields", "stage", "name") else owned(v) for k, v in tree.items()
        }
    if isinstance(tree, list):
        return [owned(item) for item in tree]
    return tree + EVIL if isinstance(tree, str) else tree


@pytest.mark.parametrize("options", [("why", "recompile"), ("guards",), ("shapes",)])
def test_a_hostile_event_log_is_told_as_text(
    log: tuple[Path, str], options: tuple[str, ...]
) -> None:
    folder, address = log
    result = show(Path(address), *options, cwd=folder)
    assert result.returncode in (0, 3), (result.stdout, result.stderr)
    assert "Traceback" not in result.stderr
    assert "owned" in result.stdout + result.stderr, "it says nothing of what is in the event log"
    assert not set(result.stdout + result.stderr) & set("\x1b\x07\u202e")
    assert not (folder / "owned").exists()

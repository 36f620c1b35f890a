"""A store whose graph was changed to call what no graph calls: every verb refuses it, and says why.

The store is a real recording of a compile that failed; its graph looks up attributes behind a
symbolic size until it holds an expression of SymPy, and calls a method that evaluates text.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard

import torchreel
from torchreel.store import Store, queries


def call(op: str, name: str, target: str, *args: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "target": target, "args": list(args), "kwargs": {}, "meta": {}}


def attack(symbol: str, tensor: str) -> dict[str, list[dict[str, Any]]]:
    """Nodes that reach outside, if they are executed; each once did, or would by another way."""
    text = "__import__('os').system('touch owned')"
    getattr_ = "fn:builtins.getattr"
    return {
        "sympy": [
            call("call_function", "e1", getattr_, {"n": symbol}, "node"),
            call("call_function", "e2", getattr_, {"n": "e1"}, "expr"),
            call("call_method", "e3", "diff", {"n": "e2"}, text),
        ],
        "globals": [
            call("get_attr", "e1", "forward.__globals__"),
            call("call_function", "e2", "fn:_operator.getitem", {"n": "e1"}, "__builtins__"),
        ],
        "class": [call("call_function", "e1", getattr_, {"n": tensor}, "__class__")],
        "address": [
            {**call("call_method", "e1", "new", {"n": tensor}), "kwargs": {"cdata": 1}},
        ],
    }


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a failed compile with a symbolic size among the inputs of its graph."""
    path = tmp_path_factory.mktemp("crafted") / "good.db"

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)[:, :0]
        return torch.scatter(y, 1, y, y) * x.size(0)  # an index of floats: Inductor fails

    torch._dynamo.reset()
    with torchreel.record(path), pytest.raises(RuntimeError):
        torch.compile(function, dynamic=True)(torch.ones(3, 2))
    return path


def crafted(good: Path, kind: str) -> Path:
    """A copy of the store in which the graph does more."""
    bad = good.with_name(f"{kind}.db")
    bad.write_bytes(good.read_bytes())
    with Store.open(good) as store:
        (recording,) = queries.recordings(store)
        compile = queries.compiles(store, recording.id)[-1]
        (row,) = (c for c in queries.checkpoints(store, compile) if c.entry == "graph")
        document = json.loads(store.read_blob(row.digest))
    nodes = document["graph"]["nodes"]
    inputs = [node for node in nodes if node["op"] == "placeholder"]
    symbol, *_, tensor = (node["name"] for node in inputs)
    rest = [node for node in nodes if node["op"] != "placeholder"]
    document["graph"]["nodes"] = [*inputs, *attack(symbol, tensor)[kind], *rest]
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    connection = sqlite3.connect(bad)
    connection.execute(
        "insert into blobs (digest, codec, size, data) values (?, 'zstd', ?, ?)",
        (digest, len(data), zstandard.ZstdCompressor().compress(data)),
    )
    connection.execute("update checkpoints set digest = ? where digest = ?", (digest, row.digest))
    connection.commit()
    connection.close()
    return bad


def command(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own."""
    start = [sys.executable, "-c", "from torchreel.cli import main; main()", *map(str, words)]
    return subprocess.run(start, capture_output=True, text=True, cwd=cwd, timeout=300)


VERBS: dict[str, list[str]] = {
    "replay": [], "minify": ["-o", "repro"], "export": ["-o", "repro"], "bisect": [], "analyze": [],
    "releases": ["--python", sys.executable, "--runs", "1"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "verb"),
    [*(("sympy", verb) for verb in VERBS), ("globals", "replay"), ("class", "replay"),
     ("address", "export")],
)  # fmt: skip
def test_a_crafted_store_is_refused(good: Path, tmp_path: Path, kind: str, verb: str) -> None:
    done = command(verb, crafted(good, kind), *VERBS[verb], cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert said.count("the node 'e1' is refused: ") == 1, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == [], "something was written or executed"


@pytest.mark.slow
def test_the_recording_itself_replays(good: Path, tmp_path: Path) -> None:
    """What the crafted stores are made of is refused for nothing."""
    assert command("replay", good, cwd=tmp_path).returncode == 0

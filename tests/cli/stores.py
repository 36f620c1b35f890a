"""Stores for the tests of the command line: a failing compile with all that belongs to it."""

from __future__ import annotations

from pathlib import Path

from tests.store.rows import (
    add_compile,
    add_event,
    add_failure,
    add_graph,
    add_recording,
    add_stage,
)
from torchreel.store import ConfigEntry, Json, Signature, Store, Writer, canonical_json

FAILED = Signature(
    "exception", "lowering", "inference", ("LoweringException", "KeyError"),
    ("torch._inductor.lowering:scatter",), "no such key",
)  # fmt: skip

TENSOR: dict[str, Json] = {
    "k": "tensor", "dtype": "float32", "device": "cpu", "layout": "strided", "size": ["s0", 8],
    "stride": [8, 1], "requires_grad": True, "flags": [],
}  # fmt: skip


def node(name: str, op: str, target: str, *args: Json, **meta: Json) -> Json:
    """A node of a graph document."""
    return {
        "name": name,
        "op": op,
        "target": target,
        "args": list(args),
        "kwargs": {},
        "meta": meta,
    }


def graph(*nodes: Json, **modules: Json) -> bytes:
    """A graph document."""
    empty: dict[str, Json] = {"attributes": {}, "extra": {}}
    return canonical_json({"nodes": list(nodes), "modules": modules, **empty})


GRAPH = graph(
    node("x", "placeholder", "x", val=TENSOR),
    node("add", "call_function", "fn:_operator.add", {"n": "x"}, 1, val=TENSOR),
    node("relu", "call_function", "op:aten.relu.default", {"n": "add"}, val=TENSOR),
    node("output", "output", "output", {"t": [{"n": "relu"}]}),
)


def failing(path: Path, document: bytes = GRAPH, **frame: object) -> Path:
    """A store with one recording, in which compile 0/1 failed and 0/0 did not."""
    with Store.open(path, write=True) as store, store.writer() as w:
        recording = add_recording(w, exit_status=1, ended_ns=2)
        add_compile(w, recording, "0/0", status="ok")
        _failing_compile(w, recording, document, frame)
        w.add_many("environment", [{"recording_id": recording, "key": "torch", "value": "2.13.0"}])
        lost = {"reason": "no portable form", "place": "guards", "count": 3, "message": "opaque"}
        w.add_many("lost", [{"recording_id": recording, **lost}])
    return path


def _failing_compile(w: Writer, recording: int, document: bytes, frame: dict[str, object]) -> None:
    config = w.config([ConfigEntry("inductor", "max_fusion_size", 1)])
    columns = {"status": "failed", "config_id": config, "started_ns": 2, **frame}
    row = add_compile(w, recording, "0/1", **columns)
    add_stage(w, row, "dynamo", ended_ns=1_500_000_001)
    add_stage(w, row, "lowering", partition="inference", status="failed", ended_ns=2)
    add_graph(w, row, digest=w.blob(document))
    add_event(w, recording, 1, compile_id=row, stage="dynamo", payload=w.blob(b"some artifact"))
    w.add(
        "output_codes", compile_id=row, partition="", ordinal=0, digest=w.blob(b"def call(): ...")
    )
    checkpoint = {"entry": "graph", "partition": "", "ordinal": 0, "digest": w.blob(b"{}")}
    w.add("checkpoints", compile_id=row, **checkpoint)
    chain: Json = [{"type": "LoweringException", "message": "KeyError: no such key\nin a graph"}]
    text = {"exception_type": "LoweringException", "message": "KeyError: no such key\nin a graph"}
    traceback = w.blob(b"Traceback (most recent call last):\nKeyError: no such key\n")
    add_failure(w, recording, row, FAILED, chain=chain, traceback=traceback, **text)

"""Rows for tests: each function adds one with everything that the test doesn't care about."""

from torchreel.store.failures.signature import Signature
from torchreel.store.writer import Writer


def add_recording(w: Writer, **columns: object) -> int:
    row = {"run": "r", "kind": "program", "pid": 1, "argv": ["train.py"], "cwd": "/src"}
    return w.add("recordings", **{**row, "started_ns": 1, "status": "done", **columns})


def add_compile(w: Writer, recording: int, compile_id: str = "0/0", **columns: object) -> int:
    row = {"attempt": 0, "frame_name": "f", "frame_file": "m.py", "frame_line": 3, "status": "ok"}
    row |= {"recording_id": recording, "compile_id": compile_id, "started_ns": 1}
    return w.add("compiles", **{**row, **columns})


def add_stage(w: Writer, compile_: int, stage: str, **columns: object) -> int:
    row = {"compile_id": compile_, "stage": stage, "partition": "", "started_ns": 1}
    return w.add("stages", **{**row, "status": "ok", **columns})


def add_event(w: Writer, recording: int, seq: int, **columns: object) -> int:
    row = {"recording_id": recording, "seq": seq, "kind": "k", "name": "n", "time_ns": seq}
    return w.add("events", **{**row, "data": {}, **columns})


def add_graph(w: Writer, compile_: int, **columns: object) -> int:
    row = {"compile_id": compile_, "stage": "dynamo", "partition": "", "ordinal": 0, "nodes": 4}
    row |= {"call_nodes": 2, "inputs": 1, "outputs": 1, "digest": "d"}
    return w.add("graphs", **{**row, **columns})


def add_failure(
    w: Writer, recording: int, compile_: int | None, signature: Signature, **columns: object
) -> int:
    row = {"recording_id": recording, "compile_id": compile_, "stage": signature.stage}
    row |= {"partition": signature.partition, "failure_class": signature.failure_class}
    row |= {"exception_type": "", "message": "", "chain": [], "time_ns": 5}
    row |= {"signature": signature.to_json(), "signature_digest": signature.digest}
    return w.add("failures", **{**row, **columns})

"""torch's structured trace in the event log."""

import logging

import torch
from torch._logging import trace_structured
from torch._logging._internal import trace_log

from tests.recorder.conftest import Record
from torchreel.recorder.failing_open import losses
from torchreel.store import queries


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_every_record_is_an_event_of_its_compile(record: Record) -> None:
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    # torch's own handler leaves at the first record, and the one behind it misses that one.
    trace_log.handlers.insert(0, handler)
    try:
        log = record(lambda: torch.compile(sine, backend="aot_eager")(torch.ones(2)))
    finally:
        trace_log.removeHandler(handler)
    events = [e for e in queries.events(log.store, log.recording) if "." not in e.kind]
    assert len(events) == len(seen) > 20
    for event, record_ in zip(events, seen, strict=True):
        assert isinstance(event.data, dict)
        assert event.kind in event.data
        assert event.data["lineno"] == record_.lineno
        assert record_.pathname.endswith(f"/{event.data['pathname']}")
    (graph,) = [event for event in events if event.kind == "dynamo_output_graph"]
    assert graph.compile_id == log.compile.id
    assert graph.stage == "dynamo"
    assert graph.payload is not None
    assert b"x.sin()" in log.store.read_blob(graph.payload).replace(b"l_x_", b"x")
    artifacts = {event.name for event in events if event.kind == "artifact"}
    assert "aot_forward_graph_fw_metadata" in artifacts


def test_a_kind_that_nobody_knows_is_stored(record: Record) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: object) -> object:
        trace_structured(
            "novelty", lambda: {"name": "n", "nan": float("nan"), "odd": {1: {2}}}, payload_fn=str
        )
        return gm.forward

    log = record(lambda: torch.compile(sine, backend=backend)(torch.ones(2)))
    (event,) = [e for e in queries.events(log.store, log.recording) if e.kind == "novelty"]
    assert (event.name, event.stage, event.compile_id) == ("n", "pre_grad", log.compile.id)
    assert isinstance(event.data, dict)
    assert event.data["novelty"] == {"name": "n", "nan": "nan", "odd": {"1": [2]}}
    assert losses.snapshot() == []


def test_levels_and_handlers_of_torch_are_left_alone(record: Record) -> None:
    before = (trace_log.level, trace_log.propagate, list(trace_log.handlers))
    record(lambda: torch.compile(sine, backend="eager")(torch.ones(2)))
    assert (trace_log.level, trace_log.propagate) == before[:2]
    assert [handler for handler in trace_log.handlers if handler not in before[2]] == []

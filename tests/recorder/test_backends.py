"""Row 18: any callable as a backend, its end, the fallback to eager, `verify_correctness`."""

from typing import Any

import pytest
import torch
from torch._dynamo import config
from torch._dynamo.exc import SkipFrame
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


def seen(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind=f"backend.{kind}")


def only(log: RecordedLog, kind: str) -> Any:
    (event,) = seen(log, kind)
    return event.data


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def mine(gm: torch.fx.GraphModule, inputs: object, **options: object) -> Any:
    return gm.forward


def test_a_function_of_the_users_own(record: Record) -> None:
    compiled = torch.compile(sine, backend=mine, options={"speed": 11, "hook": print})
    log = record(lambda: compiled(torch.ones(2)))
    (called,) = seen(log, "call")
    assert (called.name, called.compile_id) == ("mine", log.compile.id)
    assert called.data == {
        "function": f"{__name__}.mine",
        "options": {"options": {"speed": 11, "hook": "builtin_function_or_method"}},
        "nodes": 4,
        "inputs": 1,
    }
    returned = only(log, "return")
    assert (returned["outcome"], returned["exception"]) == ("ok", None)
    assert seen(log, "return")[0].cause == called.seq
    assert seen(log, "verify") == []
    assert log.lost() == []


def test_what_happens_inside_of_a_backend_is_a_part_of_its_call(record: Record) -> None:
    log = record(lambda: torch.compile(sine, backend="aot_eager")(torch.ones(2)))
    (called,) = seen(log, "call")
    metadata = queries.events(log.store, log.compile, kind="aot.metadata")
    assert [event.cause for event in metadata] == [called.seq]
    assert called.name == "aot_eager"


def test_options_and_mode_of_inductor(record: Record) -> None:
    def program() -> None:
        options: dict[str, Any] = {"max_fusion_size": 3}
        torch.compile(lambda x: x @ x, options=options, dynamic=False)(torch.ones(2, 2))

    data = only(record(program), "call")
    assert data["options"]["max_fusion_size"] == 3
    assert data["function"].startswith("torch.")


def raising(error: BaseException) -> Any:
    def backend(gm: torch.fx.GraphModule, inputs: object) -> Any:
        raise error

    return backend


@pytest.mark.parametrize(
    ("error", "outcome", "status"),
    [
        (ValueError("I do not like this graph"), "failed", "failed"),
        (SkipFrame("leave it"), "skip", "skipped"),
        (DynamicOutputShapeException(torch.ops.aten.nonzero.default), "fallback", "skipped"),
    ],
)
def test_a_backend_that_raises(
    record: Record, error: BaseException, outcome: str, status: str
) -> None:
    log = record(lambda: torch.compile(sine, backend=raising(error))(torch.ones(2)))
    data = seen(log, "return")[0].data
    assert isinstance(data, dict)
    assert data["outcome"] == outcome
    assert data["exception"] == type(error).__name__
    assert str(error).split("(")[0] in str(data["message"])
    assert log.compiles[0].status == status
    assert (queries.failures(log.store) == []) is (status != "failed")


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1, "same"), (2, "different")], ids=["correct", "wrong"]
)
def test_a_backend_that_is_verified(record: Record, factor: int, outcome: str) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: object) -> Any:
        def run(*args: Any) -> Any:
            return tuple(value * factor for value in gm(*args))

        return run

    with config.patch(verify_correctness=True):
        log = record(lambda: torch.compile(sine, backend=backend)(torch.ones(2)))
    data = only(log, "verify")
    assert data["outcome"] == outcome
    assert data["exception"] == (None if outcome == "same" else "RuntimeError")
    assert only(log, "return")["outcome"] == ("ok" if outcome == "same" else "failed")


def test_a_backend_that_gives_the_graph_back_is_not_compared(record: Record) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: object) -> Any:
        return None

    with config.patch(verify_correctness=True):
        log = record(lambda: torch.compile(sine, backend=backend)(torch.ones(2)))
    assert only(log, "verify") == {"outcome": "not compared", "exception": None}

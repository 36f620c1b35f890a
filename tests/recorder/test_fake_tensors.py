"""Row 9: conversions, dispatches with their cache outcomes, memos, missing fake kernels."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch._dynamo import config
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries

CPU = "cpu"


@pytest.fixture(autouse=True)
def _cold() -> Iterator[None]:
    """Each test begins with an empty dispatch cache, and leaves one behind."""
    FakeTensorMode.cache_clear()
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield
    FakeTensorMode.cache_clear()


def seen(log: RecordedLog, kind: str, stage: str | None = None) -> list[tuple[str, Any]]:
    events = queries.events(log.store, log.compile, kind=f"fake_tensors.{kind}")
    return [(event.name, event.data) for event in events if stage in (None, event.stage)]


def outcomes(log: RecordedLog, stage: str | None = None) -> list[tuple[object, ...]]:
    return [
        (name, data["outcome"], data["reason"], data["depth"])
        for name, data in seen(log, "dispatch", stage)
        if name != "aten.lift_fresh.default"
    ]


def test_every_operator_has_its_cache_outcome_and_its_result(record: Record) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() @ x).sin()

    before = FakeTensorMode.cache_info()
    log = record(lambda: torch.compile(f, backend="aot_eager")(torch.ones(3, 3)))
    after = FakeTensorMode.cache_info()
    assert outcomes(log, "dynamo") == [
        ("aten.sin.default", "miss", None, 0),
        ("aten.mm.default", "miss", None, 0),
        ("aten.sin.default", "hit", None, 0),
    ]
    name, data = seen(log, "dispatch", "dynamo")[1]
    assert (name, data["result"]) == ("aten.mm.default", ["float32", [3, 3], [3, 1], CPU])
    # Every hit and miss that the mode itself counted is in the event log.
    found = [data["outcome"] for _, data in seen(log, "dispatch")]
    assert found.count("hit") == after.hits - before.hits > 5
    assert found.count("miss") == after.misses - before.misses > 1
    assert found.count("bypass") == sum(after.bypasses.values()) - sum(before.bypasses.values())
    epochs = [data["epoch"] for _, data in seen(log, "dispatch")]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0] == 0
    assert log.lost() == []


def test_operators_that_run_inside_of_others_come_before_them_and_deeper(record: Record) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.t()

    log = record(lambda: torch.compile(f, backend="eager", dynamic=True)(torch.ones(2, 3)))
    depths = [(name, depth) for name, _, _, depth in outcomes(log, "dynamo")]
    assert depths == [
        ("aten.as_strided.default", 4),
        ("prims.transpose.default", 3),
        ("aten.permute.default", 2),
        ("aten.transpose.int", 1),
        ("aten.t.default", 0),
    ]
    result = seen(log, "dispatch", "dynamo")[-1][1]["result"]
    assert result == ["float32", ["s27", "s77"], None, CPU]


def test_a_conversion_has_its_source_context_and_base(record: Record) -> None:
    base = torch.arange(12.0).view(3, 4)
    compiled = torch.compile(lambda x: x.sin(), backend="eager", dynamic=True)
    log = record(lambda: compiled(base[1:]))
    (name, view), *rest = seen(log, "convert", "dynamo")
    assert name == "Tensor"
    assert view["source"].startswith("L['")
    assert view["context"]["dynamic_sizes"] == ["DUCK", "DUCK"]
    assert view["context"]["base"]["dynamic_sizes"] == ["DUCK"]
    assert (view["memo"], view["constant"]) == (False, False)
    assert view["real"] == ["float32", [2, 4], [4, 1], CPU]
    assert view["fake"] == ["float32", ["s77", "s27"], ["s27", 1], CPU]
    # The id is that of torch's own description, and the base has one as well.
    described = queries.events(log.store, log.compile, kind="describe_tensor")
    ids = {event.data["describe_tensor"]["id"] for event in described}  # type: ignore[index,call-overload]
    assert {view["tensor"], view["base"]} <= ids
    memos = [data for _, data in rest if data["tensor"] == view["base"]]
    assert [data["memo"] for data in memos] == [True]
    assert memos[0]["real"] == ["float32", [12], [1], CPU]


def test_a_count_is_remembered_and_given_back(record: Record) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.nonzero(), x.nonzero() + 1

    log = record(lambda: torch.compile(f, backend="eager")(torch.ones(3)))
    memos = [
        (name, data["memo"], data["reused"], data["value"]) for name, data in seen(log, "memo")
    ]
    assert memos[:2] == [
        ("aten.nonzero.default", "nonzero", False, "u0"),
        ("aten.nonzero.default", "nonzero", True, "u0"),
    ]
    bypassed = [row for row in outcomes(log, "dynamo") if row[0] == "aten.nonzero.default"]
    assert bypassed == [("aten.nonzero.default", "bypass", "dynamic output shape", 0)] * 2


def test_an_item_is_a_memo_of_its_conversion(record: Record) -> None:
    def f(x: torch.Tensor) -> int:
        return x.item() + 2  # type: ignore[return-value]

    log = record(lambda: torch.compile(f, backend="eager", dynamic=True)(torch.tensor(4)))
    (_, set_), (name, reused) = seen(log, "memo", "dynamo")
    assert (set_["memo"], set_["reused"]) == ("item", False)
    assert (name, reused) == ("aten._local_scalar_dense.default", {**set_, "reused": True})


torch.library.define("reel::kernelless", "(Tensor x) -> Tensor")
torch.library.impl("reel::kernelless", "CPU", torch.clone)


def test_a_missing_fake_kernel_is_a_failure_of_its_operator(record: Record) -> None:
    def f(x: torch.Tensor) -> object:
        return torch.ops.reel.kernelless(x)

    log = record(lambda: torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2)))
    ((name, data),) = seen(log, "failure")
    assert name == "reel.kernelless.default"
    assert (data["exception"], data["during"]) == ("UnsupportedOperatorException", "dispatch")
    assert "reel.kernelless.default" in data["message"]
    assert outcomes(log)[-1] == (name, "raised", "UnsupportedOperatorException", 0)


def test_a_fake_mode_of_the_programs_own(record: Record) -> None:
    def program() -> None:
        real = torch.ones(2)
        with FakeTensorMode() as mode:
            x = mode.from_tensor(real)
            x.add(1)
            x.nonzero()

    log = record(program)
    assert log.compiles == []
    rows = [
        (event.kind, event.name, event.compile_id)
        for event in queries.events(log.store, log.recording)
        if event.kind.startswith("fake_tensors.")
    ]
    assert rows == [
        ("fake_tensors.convert", "Tensor", None),
        ("fake_tensors.dispatch", "aten.add.Tensor", None),
        ("fake_tensors.failure", "aten.nonzero.default", None),
        ("fake_tensors.dispatch", "aten.nonzero.default", None),
    ]
    failure = queries.events(log.store, log.recording, kind="fake_tensors.failure")[0].data
    assert isinstance(failure, dict)
    assert failure["exception"] == "DynamicOutputShapeException"


def test_each_failure_is_noted_though_the_last_one_was_at_the_same_address(record: Record) -> None:
    def program() -> None:
        with FakeTensorMode() as mode:
            x = mode.from_tensor(torch.ones(2))
            for _ in range(20):
                with suppress(DynamicOutputShapeException):
                    x.nonzero()
                with suppress(RuntimeError):
                    x.view(3)

    log = record(program)
    assert len(queries.events(log.store, log.recording, kind="fake_tensors.failure")) == 40


def test_a_mismatching_fake_kernel(record: Record) -> None:
    @torch.library.custom_op("reel::liar", mutates_args=())
    def liar(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    liar.register_fake(lambda x: x.new_empty(7))

    with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=True):
        log = record(lambda: torch.compile(liar, backend="eager", fullgraph=True)(torch.ones(2)))
    ((name, data),) = seen(log, "mismatch")
    assert name == "reel.liar.default"
    assert data["outcome"] == "MetadataMismatchError"
    assert data["fake"] == ["float32", [7], [1], CPU]


def test_an_operator_that_runs_for_real_to_be_known(record: Record) -> None:
    def program() -> None:
        with FakeTensorMode() as mode:
            torch.ops.aten._histogramdd_bin_edges(mode.from_tensor(torch.ones(4, 1)), [2])

    log = record(program)
    (event,) = queries.events(log.store, log.recording, kind="fake_tensors.fallback")
    assert event.name == "aten._histogramdd_bin_edges.default"
    assert event.data == {"outcome": "ok", "result": [["float32", [3], [1], CPU]]}


def test_no_tensor_is_kept(record: Record) -> None:
    import gc
    import weakref

    kept: list[weakref.ref[torch.Tensor]] = []

    def program() -> None:
        x = torch.ones(3)
        kept.append(weakref.ref(x))
        torch.compile(torch.sin, backend="aot_eager")(x)

    record(program)
    torch._dynamo.reset()
    gc.collect()
    assert [ref() for ref in kept] == [None]

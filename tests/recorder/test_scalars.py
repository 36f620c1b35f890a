"""Ints and floats that are symbolic, values of 0-d tensors, and what becomes of the floats."""

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


@pytest.fixture(autouse=True)
def _capture_scalars() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_scalar_outputs=True, specialize_float=False):
        yield


def events(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind)


def symbols(log: RecordedLog) -> dict[str, list[object]]:
    return {event.name: event.data["hint"] for event in events(log, "shape_env.symbol")}


def scaled(x: torch.Tensor, factor: float, count: int) -> torch.Tensor:
    return x * (factor * 2) + count


HALVES = {2.5: ['Float("0x5p-1", 53)']}


def test_ints_and_floats_of_the_program_become_symbols(record: Record) -> None:
    log = record(
        lambda: torch.compile(scaled, backend="aot_eager", dynamic=True)(torch.ones(5), 2.5, 7)
    )
    wrapped = {event.name: event for event in events(log, "scalar.symbolic")}
    assert sorted(wrapped) == ["float", "int"]
    for kind, local in (("float", "factor"), ("int", "count")):
        found = wrapped[kind].data
        assert (found["source"]["source"], found["source"]["local_name"]) == ("LocalSource", local)
        assert (found["type"], found["value"]) == (kind, None)
        assert queries.stack(log.store, wrapped[kind])[-1].name == "scaled"
    hints = symbols(log)
    assert hints[wrapped["float"].data["expr"]] == HALVES[2.5]
    assert hints[wrapped["int"].data["expr"]] == [7]
    (real,) = [
        e for e in events(log, "shape_env.symbol") if e.name == wrapped["float"].data["expr"]
    ]
    assert (real.data["assumptions"], real.data["range"]) == (["real"], ["$-oo", "$oo"])


def test_a_static_int_is_a_constant(record: Record) -> None:
    log = record(lambda: torch.compile(lambda x, n: x * n, backend="aot_eager")(torch.ones(5), 7))
    (wrapped,) = events(log, "scalar.symbolic")
    assert (wrapped.data["type"], wrapped.data["expr"], wrapped.data["value"]) == ("int", None, 7)


def test_an_int_that_changes_becomes_a_symbol(record: Record) -> None:
    def program() -> None:
        compiled = torch.compile(lambda x, n: x * n, backend="aot_eager")
        for n in (7, 8):
            compiled(torch.ones(5), n)

    log = record(program)
    static, dynamic = events(log, "scalar.symbolic")
    assert (static.data["expr"], static.data["value"]) == (None, 7)
    assert dynamic.data["value"] is None
    assert symbols(log) == {dynamic.data["expr"]: [8]}
    assert static.compile_id != dynamic.compile_id


def test_floats_are_turned_into_tensors(record: Record) -> None:
    log = record(
        lambda: torch.compile(scaled, backend="aot_eager", dynamic=True)(torch.ones(5), 2.5, 7)
    )
    (float_symbol,) = [name for name in symbols(log) if name.startswith("zf")]
    (tensorified,) = events(log, "scalar.tensorify")
    assert float_symbol in tensorified.data["before"]
    assert tensorified.data["after"] == []
    assert (tensorified.data["specialized"], tensorified.data["restart"]) == ([], False)
    assert len(log.compiles) == 1


def test_a_float_that_no_tensor_can_be_is_specialised_in_another_attempt(record: Record) -> None:
    def full(x: torch.Tensor, value: float) -> torch.Tensor:
        return torch.full((3,), value) + x

    log = record(lambda: torch.compile(full, backend="aot_eager", dynamic=True)(torch.ones(3), 2.5))
    (tensorified,) = events(log, "scalar.tensorify")
    (name,) = tensorified.data["specialized"]
    assert name.startswith("zf")
    assert tensorified.data["restart"] is True
    assert [row.status for row in log.compiles] == ["restarted", "ok"]
    replaced = [e for e in events(log, "shape_env.replacement") if e.name == name]
    assert [(e.data["env"], e.data["expr"]) for e in replaced] == [
        (1, HALVES[2.5][0]), (2, HALVES[2.5][0]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "assumptions", "hint"),
    [(7, ["integer"], [7]), (2.5, ["real"], HALVES[2.5])],
)
def test_the_value_of_a_0d_input_is_a_backed_symbol(
    record: Record, value: float, assumptions: list[str], hint: list[object]
) -> None:
    dtype = torch.int64 if isinstance(value, int) else torch.float64
    log = record(
        lambda: torch.compile(lambda x, y: x * y.item(), backend="aot_eager", dynamic=True)(
            torch.ones(5), torch.tensor(value, dtype=dtype)
        )
    )
    (item,) = events(log, "scalar.item")
    assert item.data["source"]["source"] == "CallMethodItemSource"
    assert item.data["source"]["base"]["local_name"] == "y"
    (symbol,) = [e for e in events(log, "shape_env.symbol") if e.name == item.name]
    assert (symbol.data["assumptions"], symbol.data["hint"]) == (assumptions, hint)
    assert item.cause == symbol.cause

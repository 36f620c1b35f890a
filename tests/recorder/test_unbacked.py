"""Unbacked symbols from creation to rebinding, and the assertions about them."""

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


@pytest.fixture(autouse=True)
def _capture_unbacked() -> Iterator[None]:
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        yield


def events(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind)


def data(log: RecordedLog, kind: str, *fields: str) -> list[tuple[object, ...]]:
    return [tuple(event.data[name] for name in fields) for event in events(log, kind)]


def cause(log: RecordedLog, event: Event) -> Event:
    (found,) = [e for e in queries.events(log.store, log.recording) if e.seq == event.cause]
    return found


def count_ones(x: torch.Tensor) -> torch.Tensor:
    found = torch.nonzero(x)
    torch._check(found.shape[0] > 2)
    return torch.zeros(found.shape[0]) + found.sum()


def compile_count_ones() -> None:
    torch.compile(count_ones, backend="aot_eager", fullgraph=True)(torch.ones(10))


SIZE = [{"record": "CallMethodKey", "name": "size"}, {"record": "SequenceKey", "idx": 0}]


def test_symbols_are_created_bound_and_renamed(record: Record) -> None:
    log = record(compile_count_ones)
    unknown = ["$-int_oo", "$int_oo"]
    assert data(log, "unbacked.create", "env", "symbol", "assumptions", "range") == [
        (1, name, ["integer"], unknown) for name in ("u0", "u1", "u2")
    ]
    first = events(log, "unbacked.create")[0]
    assert cause(log, first).name == "create_unbacked_symint"
    frame = queries.stack(log.store, first)[-1]
    assert (frame.name, frame.line) == ("count_ones", count_ones.__code__.co_firstlineno + 1)

    bindings = events(log, "unbacked.bindings")
    assert [event.data for event in bindings] == [
        {"env": 1, "bindings": {"u0": SIZE}, "peek": False},
        {"env": 1, "bindings": {"u2": SIZE}, "peek": False},
    ]
    assert [event.stage for event in bindings] == ["dynamo", "joint"]

    # AOTAutograd traces twice: each time the node's new symbol is the one that Dynamo gave it.
    assert data(log, "unbacked.rename", "symbol", "to") == [("u1", "u0"), ("u2", "u0")]
    rebinds = events(log, "unbacked.rebind")
    assert [(event.name, event.data["bindings"]) for event in rebinds] == [
        ("found", {"u0": SIZE})
    ] * 2
    renamed = cause(log, events(log, "unbacked.rename")[0])
    assert renamed.name == "_rename_unbacked_to"
    assert renamed.data["arguments"] == {"orig_s": "u1", "new_s": "u0"}
    reasons = data(log, "shape_env.replacement", "symbol", "expr", "reason")
    assert reasons == [("u1", "u0", "rename_unbacked_to"), ("u2", "u0", "rename_unbacked_to")]


def test_sizes_are_size_like_and_have_ranges(record: Record) -> None:
    log = record(compile_count_ones)
    assert data(log, "unbacked.size_like", "symbol") == [("u0",), ("u1",), ("u2",)]
    of_first = [
        row[1:] for row in data(log, "shape_env.range", "symbol", "old", "new") if row[0] == "u0"
    ]
    assert of_first == [(["$-int_oo", "$int_oo"], [0, 10]), ([0, 10], [3, 10])]
    constrained = cause(log, events(log, "unbacked.size_like")[0])
    assert constrained.name == "_constrain_range_for_size"
    assert constrained.data["arguments"] == {"a": "u0", "min": None, "max": 10}


def test_fresh_symbols_that_are_thrown_away_need_no_binding(record: Record) -> None:
    """Which is so in the first trace of AOTAutograd."""
    log = record(compile_count_ones)
    assert data(log, "unbacked.create", "symbol", "pending") == [
        ("u0", True), ("u1", False), ("u2", True),
    ]  # fmt: skip
    pending = [
        event.data["changes"]["pending_fresh_unbacked_symbols"]["all"]
        for event in events(log, "shape_env.set")
        if "pending_fresh_unbacked_symbols" in event.data["changes"]
    ]
    assert pending == [["u0"], [], ["u2"], []]


def test_assertions_are_deferred_and_inserted(record: Record) -> None:
    log = record(compile_count_ones)
    (deferred,) = events(log, "runtime_assert.defer")
    assert deferred.data["symbol"] == "u0"
    # As it was asked for, and in the form that torch keeps.
    call = cause(log, deferred)
    assert call.data["arguments"]["orig_expr"] == "StrictGreaterThan(u0, 2)"
    assert deferred.data["expr"] == "StrictLessThan(2, u0)"
    assert deferred.data["message"] == call.data["arguments"]["msg"]
    assert queries.stack(log.store, deferred)[-1].line == count_ones.__code__.co_firstlineno + 2

    (inserted,) = events(log, "runtime_assert.insert")
    added = {node["name"]: (node["target"], node["args"]) for node in inserted.data["added"]}
    assert added["sym_size_int"] == ("sym_size.int", "(found, 0)")
    assert added["ge"] == ("ge", "(sym_size_int, 3)")
    assert added["le"] == ("le", "(sym_size_int, 10)")
    target, args = added["_assert_scalar_default"]
    assert target == "_assert_scalar.default"
    assert "Runtime assertion failed for expression u0 >= 3" in args
    assert inserted.seq > deferred.seq


def test_assertions_that_are_known_to_hold_are_not_deferred(record: Record) -> None:
    log = record(compile_count_ones)
    known = data(log, "runtime_assert.known", "expr", "value")
    assert known[0] == ("GreaterThan(u0, 0)", True)
    assert ("GreaterThan(u0, 3)", True) in known
    assert len(known) == len(set(known))
    assert all(value is True for _, value in known)


def test_a_decision_that_depends_on_data(record: Record) -> None:
    def decides(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        u = (x * 1).item()
        torch._check(u >= 0)
        if u > y.shape[0]:
            return y + 1
        return y

    def program() -> None:
        compiled = torch.compile(decides, backend="aot_eager", fullgraph=True, dynamic=True)
        compiled(torch.tensor(7), torch.ones(5))

    log = record(program)
    (error,) = events(log, "unbacked.data_dependent_error")
    (backed,) = [e for e in events(log, "shape_env.symbol") if e.data["hint"] == [5]]
    symbol = backed.name
    assert error.name == "GuardOnDataDependentSymNode"
    assert error.data["expr"] == "StrictGreaterThan(u0, 5)"
    assert error.data["unhinted"] == f"StrictGreaterThan(u0, {symbol})"
    assert error.data["hints"] == {symbol: [5]}
    assert error.data["size_like"] == []
    assert error.data["message"].startswith(
        f"Could not guard on data-dependent expression u0 > 5 (unhinted: u0 > {symbol})"
    )
    frame = queries.stack(log.store, error)[-1]
    assert (frame.name, frame.line) == ("decides", decides.__code__.co_firstlineno + 3)
    assert log.compile.status == "failed"


def test_an_unbacked_symbol_may_be_eliminated(record: Record) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        u = (x * 1).item()
        torch._check(u == y.shape[0])
        return y + torch.zeros(u)

    def program() -> None:
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
        compiled(torch.tensor(5), torch.ones(5))

    log = record(program)
    (_, size) = events(log, "shape_env.symbol")
    assert data(log, "shape_env.replacement", "symbol", "expr", "old", "reason") == [
        ("u0", size.name, None, "trivial_lhs"),
        ("u1", "u0", None, "rename_unbacked_to"), ("u1", size.name, "u0", "find"),
        ("u2", "u0", None, "rename_unbacked_to"), ("u2", size.name, "u0", "find"),
    ]  # fmt: skip
    (deferred,) = events(log, "runtime_assert.defer")
    assert deferred.data["expr"] == f"Equality(u0, {size.name})"
    assert deferred.cause == events(log, "shape_env.replacement")[0].cause


def test_export_turns_guards_into_assertions(record: Record) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 4)

    def program() -> None:
        torch.export.export(
            Module(), (torch.ones(8, 3),), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}},
            strict=False, prefer_deferred_runtime_asserts_over_guards=True,
        )  # fmt: skip

    log = record(program)
    created = events(log, "shape_env.create")[0]
    assert created.data["settings"]["prefer_deferred_runtime_asserts_over_guards"] is True
    deferred = events(log, "runtime_assert.defer")
    (symbol,) = [event.name for event in events(log, "shape_env.symbol")]
    deferred = data(log, "runtime_assert.defer", "symbol", "expr")
    assert (None, f"Equality(Mod(Mul(3, {symbol}), 4), 0)") in deferred
    assert {bound_to for bound_to, _ in deferred} == {None}
    # What an ordinary compile would guard on.
    guarded = [
        e for e in events(log, "runtime_assert.defer") if cause(log, e).name == "_evaluate_expr"
    ]
    assert guarded[0].data["expr"] == f"Unequality(FloorDiv(Mul(3, {symbol}), 4), {symbol})"
    assert guarded[0].data["message"] == f"evaluate_expr: Eq(((3*{symbol})//4), {symbol})"
    assert events(log, "shape_env.guard") == []
    (inserted,) = events(log, "runtime_assert.insert")
    assert ("mod", "(mul, 4)") in [(n["target"], n["args"]) for n in inserted.data["added"]]

"""What changes a ShapeEnv, in order, with its cause and the user's stack; and nothing else."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

import torchreel
from tests.recorder.conftest import Record, RecordedLog
from torchreel.events.scalars import KnownAssert
from torchreel.recorder import failing_open
from torchreel.recorder.probes import shape_env
from torchreel.store import Store, queries
from torchreel.store.records import Event


def events(log: RecordedLog, *kinds: str) -> list[Event]:
    found = queries.events(log.store, log.recording)
    return [event for event in found if event.kind in kinds or not kinds]


def one(log: RecordedLog, kind: str) -> Event:
    (event,) = events(log, kind)
    return event


def parts(log: RecordedLog, call: Event) -> list[Event]:
    return [event for event in events(log) if event.cause == call.seq]


def size(name: str, dim: int) -> dict[str, Any]:
    base = {
        "source": "LocalSource", "local_name": name, "is_input": True, "dynamism": None,
        "is_derefed_cell_contents": False, "is_varargs": False, "is_varkw": False,
    }  # fmt: skip
    prop = {"enum": "TensorProperty", "name": "SIZE"}
    return {"source": "TensorPropertySource", "base": base, "prop": prop, "idx": dim}


def only_six(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 6:
        return x + 1
    return x


def compile_only_six() -> None:
    torch.compile(only_six, backend="aot_eager", dynamic=True)(torch.ones(6, 4))


def test_a_shape_env_has_its_settings(record: Record) -> None:
    created = one(record(compile_only_six), "shape_env.create")
    assert created.data == {
        "env": 1,
        "settings": {
            "allow_scalar_outputs": False, "allow_dynamic_output_shape_ops": False,
            "assume_static_by_default": False, "specialize_zero_one": True, "duck_shape": True,
            "prefer_deferred_runtime_asserts_over_guards": False, "trace_asserts": False,
        },
        "validation": False,
    }  # fmt: skip
    assert created.compile_id is not None
    assert created.stage == "dynamo"


def test_symbols_come_with_what_decides_about_them(record: Record) -> None:
    log = record(compile_only_six)
    first, second = events(log, "shape_env.symbol")
    assert first.data == {
        "env": 1, "symbol": first.name, "assumptions": ["integer", "positive"], "hint": [6],
        "range": [2, "$int_oo"], "sources": [size("x", 0)],
    }  # fmt: skip
    assert (second.data["hint"], second.data["sources"]) == ([4], [size("x", 1)])
    (call,) = {event.cause for event in (first, second)}
    (made,) = [event for event in events(log, "shape_env.call") if event.seq == call]
    assert made.name == "_create_symbolic_sizes_strides_storage_offset"
    arguments = made.data["arguments"]
    assert (arguments["ex_size"], arguments["ex_stride"]) == ([6, 4], [4, 1])
    assert arguments["symbolic_context"]["type"] == "StatefulSymbolicContext"
    assert arguments["symbolic_context"]["dynamic_sizes"] == ["DUCK", "DUCK"]
    assert queries.stack(log.store, made)[-1].name == "only_six"
    (rest,) = [event for event in parts(log, made) if event.kind == "shape_env.set"]
    assert rest.data["changes"]["source_to_var"] == {
        "put": [["L['x'].size()[0]", first.name], ["L['x'].size()[1]", second.name]]
    }


def test_a_specialisation_is_told_step_by_step(record: Record) -> None:
    log = record(compile_only_six)
    symbol = events(log, "shape_env.symbol")[0].name
    guarded = one(log, "shape_env.guard")
    (call,) = [event for event in events(log, "shape_env.call") if event.seq == guarded.cause]
    assert call.name == "_evaluate_expr"
    assert call.data["arguments"]["orig_expr"] == f"Equality({symbol}, 6)"
    assert call.data["arguments"]["hint"] is True
    steps = [event for event in parts(log, call) if event.kind.startswith("shape_env.")]
    assert [(event.kind, event.name) for event in steps] == [
        ("shape_env.range", symbol), ("shape_env.replacement", symbol), ("shape_env.guard", ""),
        ("shape_env.set", ""),
    ]  # fmt: skip
    refined, replaced, _, rest = steps
    assert refined.data == {
        "env": 1, "symbol": symbol, "old": [2, "$int_oo"], "new": [6, 6]
    }  # fmt: skip
    assert replaced.data == {
        "env": 1, "symbol": symbol, "expr": 6, "old": None, "reason": "range_refined_to_singleton",
    }  # fmt: skip
    assert guarded.data["expr"] == f"Equality({symbol}, 6)"
    assert guarded.data["size_oblivious"] is False
    assert "test_shape_env.py" in guarded.data["location"]
    assert list(rest.data["changes"]) == ["axioms"]
    for event in (call, *steps):
        frame = queries.stack(log.store, event)[-1]
        assert (frame.file, frame.line) == (__file__, only_six.__code__.co_firstlineno + 1)


def test_ducks_zeros_and_ones(record: Record) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()

    def program() -> None:
        torch.compile(f, backend="aot_eager", dynamic=True)(torch.ones(5, 1), torch.ones(5))

    log = record(program)
    symbol = one(log, "shape_env.symbol")
    assert (symbol.data["hint"], symbol.data["sources"]) == ([5], [size("x", 0)])
    duck = one(log, "shape_env.duck")
    assert duck.data == {
        "env": 1, "symbol": symbol.name, "source": size("y", 0), "first": False,
    }  # fmt: skip
    ones = [
        (event.data["source"], event.data["value"]) for event in events(log, "shape_env.zero_one")
    ]
    assert ("L['x'].size()[1]", 1) in ones
    assert {value for _, value in ones} == {1}
    assert all("size()[0]" not in source for source, _ in ones)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_look_that_fails_does_not_end_all_others(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x[0].item()
        torch._check(n >= 2)
        torch._check(n >= 1)  # known: noted by the function that fails
        torch._check(n < 10)
        return torch.zeros(n)

    def program() -> None:
        torch._dynamo.reset()
        torch.compile(f, backend="aot_eager")(torch.tensor([3]))

    def seen(log: RecordedLog) -> list[tuple[str, str]]:
        found = [event for event in events(log) if event.kind.startswith("shape_env.")]
        return [(e.kind, e.name) for e in found if e.kind != KnownAssert.kind]

    def broken(*args: object) -> None:
        raise ZeroDivisionError

    whole = record(program)
    assert whole.lost() == []
    monkeypatch.setattr(shape_env, "_note_known", broken)
    log = record(program)
    assert {reason for reason, _ in log.lost()} == {"ZeroDivisionError"}
    assert seen(log) == seen(whole)


def test_remainders_that_are_zero(record: Record) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4) if x.shape[0] % 4 == 0 else x

    log = record(lambda: torch.compile(f, backend="aot_eager", dynamic=True)(torch.ones(8)))
    symbol = one(log, "shape_env.symbol").name
    divisible = events(log, "shape_env.divisible")[0]
    assert divisible.data == {"env": 1, "expr": f"Mod({symbol}, 4)"}
    (call,) = [event for event in events(log, "shape_env.call") if event.seq == divisible.cause]
    assert call.data["arguments"]["orig_expr"] == f"Equality(Mod({symbol}, 4), 0)"


def more_than_three(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 3:
        return x + 1
    return x


def test_guards_are_produced_and_then_it_is_frozen(record: Record) -> None:
    log = record(
        lambda: torch.compile(more_than_three, backend="aot_eager", dynamic=True)(torch.ones(6))
    )
    produced = one(log, "shape_env.guards")
    python, verbose = produced.data["guards"]
    assert python == ["4 <= L['x'].size()[0]"]
    assert verbose[0].startswith("4 <= L['x'].size()[0]  # if x.shape[0] > 3:")
    frozen = events(log, "shape_env.call")[-1]
    assert frozen.name == "freeze"
    (rest,) = parts(log, frozen)
    assert rest.data == {"env": 1, "changes": {"frozen": {"all": True}}}
    assert frozen.seq > produced.seq


def test_a_checkpoint_has_its_place(record: Record) -> None:
    log = record(compile_only_six)
    mark = one(log, "shape_env.checkpoint")
    assert (mark.name, mark.data) == ("graph", {"env": 1, "partition": "", "ordinal": 0})
    assert mark.seq > one(log, "shape_env.guard").seq


def test_calls_that_change_nothing_leave_no_trace(record: Record) -> None:
    def asks_again(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            if x.shape[0] > 3 and x.shape[0] > 2 and x.shape[0] >= 0:
                x = x + 1
        return x

    log = record(
        lambda: torch.compile(asks_again, backend="aot_eager", dynamic=True)(torch.ones(6))
    )
    calls = Counter(event.name for event in events(log, "shape_env.call"))
    assert calls == {
        "_create_symbolic_sizes_strides_storage_offset": 1, "_evaluate_expr": 1, "freeze": 1,
    }  # fmt: skip
    assert len(events(log, "shape_env.guard")) == 1


def test_each_call_changed_something(record: Record) -> None:
    log = record(compile_only_six)
    for call in events(log, "shape_env.call"):
        assert [part for part in parts(log, call) if part.kind.startswith("shape_env.")]
        assert call.cause is None or call.cause not in {
            e.seq for e in events(log, "shape_env.call")
        }


def test_what_comes_without_a_call_is_noted_before_the_next_one(path: Path) -> None:
    with torchreel.record(path):
        env = ShapeEnv()
        env.create_unbacked_symint()
        env.pending_fresh_unbacked_symbols.clear()
        with env.error_on_new_guards():
            env.create_unbacked_symint()
        env.freeze()
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        found = [e for e in queries.events(store, recording) if e.kind == "shape_env.set"]
        outside = [event.data["changes"] for event in found if event.cause is None]
    assert outside == [
        {
            "pending_fresh_unbacked_symbols": {"all": []}, "frozen": {"all": True},
            "_error_on_new_guards": {"all": True},
        },
        {"frozen": {"all": False}, "_error_on_new_guards": {"all": False}},
    ]  # fmt: skip


def test_a_shape_env_that_was_there_before_is_taken_in_whole(path: Path) -> None:
    from torch._dynamo.source import ConstantSource

    env = ShapeEnv()
    env.create_symbol(5, ConstantSource("before"), dynamic_dim=DimDynamic.DYNAMIC)
    with torchreel.record(path):
        env.create_symbol(7, ConstantSource("after"), dynamic_dim=DimDynamic.DYNAMIC)
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        found = queries.events(store, recording)
    kinds = [(e.kind, e.data.get("hint")) for e in found if e.kind.startswith("shape_env.")]
    assert kinds == [
        ("shape_env.create", None), ("shape_env.symbol", [5]), ("shape_env.set", None),
        ("shape_env.call", None), ("shape_env.symbol", [7]), ("shape_env.set", None),
    ]  # fmt: skip


def test_a_probe_that_fails_costs_only_itself(record: Record) -> None:
    def inject(place: str) -> None:
        if place.endswith(("_evaluate_expr", "_set_replacement")):
            raise ValueError("injected")

    result = []

    def program() -> None:
        failing_open.inject = inject
        compiled = torch.compile(only_six, backend="aot_eager", dynamic=True)
        result.append(compiled(torch.ones(6, 4)))

    log = record(program)
    assert torch.equal(result[0], torch.full((6, 4), 2.0))
    assert {reason for reason, _ in log.lost()} == {"ValueError"}
    # The guard is found by whoever looks next.
    assert one(log, "shape_env.guard").data["expr"].startswith("Equality(")


_GUARDS = """
import logging, sys, torch
import torch._dynamo
from torch.fx.experimental.symbolic_shapes import ShapeEnv
lines = []
produce = ShapeEnv.produce_guards_verbose
def spy(self, *args, **kwargs):
    result = produce(self, *args, **kwargs)
    lines.extend(expr for helper in result for expr in helper.exprs)
    lines.extend(f"{guard.expr} {guard.sloc}" for guard in self.guards)
    lines.extend(f"{s} {slocs.lower} {slocs.upper}" for s, slocs in self.var_to_range_sloc.items())
    lines.extend(f"{s} {sloc}" for s, sloc in self.replacements_slocs.items())
    lines.extend(sorted(f"{key}={value}" for key, value in self.counter.items()))
    return result
ShapeEnv.produce_guards_verbose = spy
class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
log.setLevel(logging.DEBUG)
log.addHandler(Lines())
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True
def f(x, y, n, s):
    if x.shape[0] > 3:
        x = x.reshape(-1, 2)
    u = (y * 1).item()
    torch._check(u >= 2)
    torch._check(u <= 50)
    return x.sum() * s + torch.zeros(u)[: u - 1].sum() * n, torch.nonzero(x)
if len(sys.argv) > 1:
    import torchreel
    torchreel.install(sys.argv[1])
torch.compile(f, backend="aot_eager", dynamic=True)(torch.ones(6, 4), torch.tensor(5), 7, 2.5)
print("\\n".join(lines))
"""


@pytest.mark.slow
def test_torch_says_the_same_with_and_without_the_recorder(tmp_path: Path) -> None:
    """Guards, source locations, counters, and every line that the ShapeEnv logs."""
    program = tmp_path / "program.py"
    program.write_text(_GUARDS)
    texts = []
    for arguments in ([], [str(tmp_path / "guards.db")]):
        done = subprocess.run(
            [sys.executable, str(program), *arguments], capture_output=True, text=True, check=True
        )
        texts.append(done.stdout)
    assert texts[0].count("\n") > 60
    assert "create_symbol" in texts[0]
    assert "set_replacement" in texts[0]
    assert texts[0] == texts[1]
    with Store.open(tmp_path / "guards.db") as store:
        (recording,) = queries.recordings(store)
        counts = queries.event_counts(store, recording)
    assert counts["shape_env.guard"] > 1
    assert counts["unbacked.create"] > 1

"""What Dynamo makes of a frame besides the graph: inputs, side effects, globals, bytecode."""

import dis
import random
from typing import Any

import pytest
import torch

from tests.recorder.conftest import Record, RecordedLog
from torchreel.formats.sources import decode_source, expand_source
from torchreel.recorder.probes.bytecode import without_globals
from torchreel.store import queries
from torchreel.store.records import Event

counts = {"calls": 0}
latest: Any = None


class Box:
    """Something with attributes."""


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def events(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.compiles[-1], kind)


def data(event: Event) -> Any:
    return event.data


def line(function: Any, offset: int) -> int:
    return int(function.__code__.co_firstlineno) + offset


def test_inputs_come_in_order_with_their_sources(record: Record) -> None:
    def add(x: torch.Tensor, box: Any) -> torch.Tensor:
        return x.sum(0) * x.shape[0] + box.bias

    def program() -> None:
        box = Box()
        box.bias = torch.ones(3)  # type: ignore[attr-defined]
        torch.compile(add, backend="eager", dynamic=True)(torch.ones(4, 3), box)

    log = record(program)
    found = [(event.name, *data(event).values()) for event in events(log, "output_graph.input")]
    # name, position, expression, row of the source, class, passed as a tensor, users
    assert [(row[0], row[1], row[2], row[4], row[5], row[6]) for row in found] == [
        ("s77", 0, "L['x'].size()[0]", "torch.SymInt", False, 1),
        ("s27", 1, "L['x'].size()[1]", "torch.SymInt", False, 0),
        ("l_x_", 2, "L['x']", "torch.Tensor", False, 1),
        ("l_box_bias", 3, "L['box'].bias", "torch.Tensor", False, 1),
    ]
    (table,) = events(log, "output_graph.sources")
    for row in found:
        source = decode_source(expand_source(data(table)["rows"], row[3]))
        assert source is not None
        assert source.name == row[2]
    (checkpoint,) = queries.graphs(log.store, log.compile)
    assert checkpoint.inputs == len(found)
    assert log.lost() == []


def test_inputs_that_nothing_uses_are_named(record: Record) -> None:
    def ignore(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.size()
        return x.sin()

    log = record(lambda: torch.compile(ignore, backend="eager")(torch.ones(2), torch.ones(3)))
    (unused,) = events(log, "output_graph.unused_input")
    assert unused.name == "l_y_"
    assert data(unused) == {
        "position": 0, "expression": "L['y']", "type": "torch.Tensor", "why": "unused",
    }  # fmt: skip
    assert [event.name for event in events(log, "output_graph.input")] == ["l_x_"]


def test_a_float_that_cannot_become_a_tensor_is_taken_out(record: Record) -> None:
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.nn.functional.dropout(x, p=factor) + 1

    def program() -> None:
        with torch._dynamo.config.patch(specialize_float=False):
            compiled = torch.compile(scale, backend="aot_eager", dynamic=True)
            compiled(torch.ones(3), 0.25)

    log = record(program)
    restarts = queries.events(log.store, log.recording, "frame.restart")
    assert [event.name for event in restarts] == ["TensorifyScalarRestartAnalysis"]
    (unused,) = events(log, "output_graph.unused_input")
    assert data(unused)["expression"] == "L['factor']"
    assert data(unused)["why"] == "specialised"
    assert "l_factor_" not in [event.name for event in events(log, "output_graph.input")]


def mutates(x: torch.Tensor, box: Any, items: list[int]) -> torch.Tensor:
    global latest
    y = x.sin()
    box.first = y
    box.second = 3
    items.append(4)
    counts["calls"] += 1
    latest = y
    return y


def test_side_effects_say_what_changes_and_where(record: Record) -> None:
    log = record(lambda: torch.compile(mutates, backend="eager")(torch.ones(3), Box(), [1]))
    found = events(log, "output_graph.side_effect")
    assert [event.name for event in found] == [
        "UserDefinedObjectVariable", "ListVariable", "ConstDictVariable", "NewGlobalVariable",
    ]  # fmt: skip
    box, items, calls, world = (data(event) for event in found)
    assert (box["source"]["local_name"], box["type"]) == ("box", f"{__name__}.Box")
    assert (box["attributes"], box["mutation"]) == (
        ["first", "second"],
        "AttributeMutationExisting",
    )
    assert box["places"] == 2
    assert (items["source"]["local_name"], items["attributes"]) == ("items", [])
    assert items["mutation"] == "ValueMutationExisting"
    assert calls["source"] == {"source": "GlobalSource", "global_name": "counts"}
    assert world["attributes"] == ["latest"]
    lines = [queries.stack(log.store, event)[-1].line for event in found]
    assert lines == [line(mutates, n) for n in (4, 5, 6, 7)]


def test_a_hook_on_an_input_is_a_side_effect(record: Record) -> None:
    def hooks(x: torch.Tensor) -> torch.Tensor:
        x.register_hook(double)
        return x.sin()

    def program() -> None:
        torch.compile(hooks, backend="eager")(torch.ones(3, requires_grad=True))

    log = record(program)
    (hook,) = events(log, "output_graph.hook")
    assert hook.name == "register_hook"
    assert data(hook)["source"]["local_name"] == "x"
    assert data(hook)["hook_source"]["global_name"] == "double"
    assert data(hook)["where"] == "side effect"


def test_a_hook_on_an_intermediate_goes_into_the_backward_state(record: Record) -> None:
    def hooks(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y.register_hook(double)
        return y.cos()

    def program() -> None:
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            x = torch.ones(3, requires_grad=True)
            torch.compile(hooks, backend="aot_eager")(x)

    log = record(program)
    (hook,) = events(log, "output_graph.hook")
    assert (hook.name, data(hook)["where"]) == ("hook0", "backward state")
    assert data(hook)["source"] is None


def test_random_calls_are_with_the_graph(record: Record) -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return x + random.randint(2, 5) + random.uniform(0.5, 1.5)

    log = record(lambda: torch.compile(noise, backend="eager")(torch.ones(3)))
    (compile,) = events(log, "output_graph.compile")
    assert data(compile)["random_calls"] == [["randint", [2, 5]], ["uniform", [0.5, 1.5]]]
    installed = [event.name for event in events(log, "output_graph.global")]
    assert any(name.startswith("__gen_rand_values") for name in installed)


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return torch.nn.functional.relu(y)


@pytest.fixture
def broken(record: Record) -> RecordedLog:
    return record(lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))


def test_a_graph_says_why_it_ends(broken: RecordedLog) -> None:
    first, second = queries.events(broken.store, broken.recording, "output_graph.compile")
    assert data(first)["graph_break"] is True
    assert data(first)["reason"].startswith("Call to `torch._dynamo.graph_break()`")
    assert [frame.line for frame in queries.stack(broken.store, first)] == [line(breaks, 2)]
    assert data(second) == {"reason": "return_value", "graph_break": False, "random_calls": []}
    assert [frame.line for frame in queries.stack(broken.store, second)] == [line(breaks, 3)]


def test_what_goes_into_the_globals_is_named(broken: RecordedLog) -> None:
    of_first = queries.events(broken.store, broken.compiles[1], "output_graph.global")
    installed = {event.name.strip("_").split("_")[0]: data(event) for event in of_first}
    assert installed["builtins"] == {"value": "an object of dict", "module": False}
    assert installed["compiled"]["value"].startswith("forward ")
    (resume,) = [event for event in of_first if event.name.startswith("__resume_at_")]
    assert data(resume)["value"] == (
        f"{__name__}.torch_dynamo_resume_in_breaks_at_{line(breaks, 2)} "
        f"({__file__}:{line(breaks, 2)})"
    )
    modules = {event.name: data(event)["value"] for event in of_first if data(event)["module"]}
    assert modules["__import_torch_dot__dynamo_dot_utils"] == "torch._dynamo.utils"


def test_the_bytecode_is_kept_before_and_after(broken: RecordedLog) -> None:
    original, generated = queries.events(broken.store, broken.compiles[1], "output_graph.bytecode")
    assert (original.name, generated.name) == ("original", "generated")
    assert data(original) == {
        "function": "breaks",
        "size": len(breaks.__code__.co_code),
        "names": list(breaks.__code__.co_names),
        "stack_size": breaks.__code__.co_stacksize,
    }
    assert original.payload is not None
    assert generated.payload is not None
    before = broken.store.read_blob(original.payload).decode()
    after = broken.store.read_blob(generated.payload).decode()
    assert "graph_break" in before
    assert "__compiled_fn" not in before
    assert "LOAD_GLOBAL" in after
    assert "__compiled_fn" in after
    assert "__resume_at_" in after
    # The attempt that was given up came to no bytecode.
    assert queries.events(broken.store, broken.compiles[0], "output_graph.bytecode") == []


def _call_hooked(names: dict[str, Any]) -> None:
    x = torch.ones(3, requires_grad=True).clone()
    torch.compile(names["hooked"], backend="eager")(x)


def test_the_bytecode_shows_no_globals_of_the_program(record: Record) -> None:
    """Dynamo makes the hook again in the generated bytecode, from the globals of its module."""

    class Talking:
        def __repr__(self) -> str:
            return "all that it holds\nin two lines"

    here = {"torch": torch, "held": Talking(), "__name__": "program", "api_key": "tell nobody"}
    exec(
        """
def hooked(x):
    x.register_hook(lambda grad: grad * 3)
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()
""",
        here,
    )

    log = record(lambda: _call_hooked(here))
    codes = [
        log.store.read_blob(event.payload).decode()
        for compile in log.compiles
        for event in queries.events(log.store, compile, "output_graph.bytecode")
        if event.payload is not None
    ]
    assert any("LOAD_CONST" in code and "(<globals of program>)" in code for code in codes)
    assert not any("tell nobody" in code or "all that it holds" in code for code in codes)


def test_the_bytecode_of_a_resume_function_runs_nothing_of_the_program(record: Record) -> None:
    """Torch prints it for whoever listens, with the globals that a function is made again from."""

    class Refuses:
        def __repr__(self) -> str:
            raise RuntimeError("I am not to be printed")

    here = {"torch": torch, "held": Refuses(), "__name__": "program"}
    exec(
        """
def hooked(x):
    y = x.sin()
    torch._dynamo.graph_break()
    x.register_hook(lambda grad: grad * 3)
    return y.cos()
""",
        here,
    )

    log = record(lambda: _call_hooked(here))
    assert [compile.status for compile in log.compiles] == ["restarted", "ok", "ok"]
    assert log.lost() == []
    (event,) = (
        event
        for compile in log.compiles
        for event in queries.events(log.store, compile, "artifact")
        if event.name.endswith("_MODIFIED_BYTECODE")
    )
    assert event.payload is not None
    assert "(<dict>)" in log.store.read_blob(event.payload).decode()


def test_torchs_text_of_the_bytecode_loses_what_a_dictionary_holds() -> None:
    class Talking:
        def __repr__(self) -> str:
            return "all that it holds\n   in two lines"

    def program(x: Any) -> Any:
        try:
            return [x, 1.5, "text"]
        except ValueError:
            return -1

    code = program.__code__
    held = {"__name__": "program", "a": Talking(), "b": {"c": "tell nobody"}, "d": 7}
    constants = tuple(held if value == 1.5 else value for value in code.co_consts)
    text = dis.Bytecode(code.replace(co_consts=constants)).dis()
    cut = without_globals(text)
    assert "tell nobody" in text
    assert "two lines" in text
    assert "(<dict>)" in cut
    assert "tell nobody" not in cut
    assert "two lines" not in cut
    before = dis.Bytecode(code).dis()
    assert cut == before.replace("(1.5)", "(<dict>)")
    assert without_globals(before) == before

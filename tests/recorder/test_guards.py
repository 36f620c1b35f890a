"""Every guard of a compile, as data: type, Source, code, stack, and the state around the frame."""

import json
import types
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.recorder.conftest import Record, RecordedLog
from torchreel.errors import UnsupportedError
from torchreel.formats.sources import decode_source, expand_source
from torchreel.store import queries
from torchreel.store.records import Event

helpers = types.ModuleType("some_helpers")
helpers.scale = 3  # type: ignore[attr-defined]


class Shape:
    """A class that is guarded on."""

    sides = 4


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.extra = {"first": 1, "second": 2}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        for key in self.extra:
            y = y + self.extra[key]
        return y * Shape.sides * helpers.scale


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def guards(log: RecordedLog) -> list[Event]:
    return queries.events(log.store, log.compile, "guards.guard")


def data(event: Event) -> Any:
    return event.data


def only(log: RecordedLog, kind: str) -> Event:
    (event,) = queries.events(log.store, log.compile, kind)
    return event


def found(log: RecordedLog, kind: str, expression: str) -> Any:
    """The guard of a type on an expression."""
    (event,) = [
        event
        for event in guards(log)
        if event.name == kind and data(event)["expression"] == expression
    ]
    return event.data


def source(log: RecordedLog, guard: Mapping[str, Any]) -> Any:
    """The Source of a guard, in full."""
    return expand_source(data(only(log, "guards.sources"))["rows"], guard["source"])


def test_each_guard_has_its_type_source_code_and_line(record: Record) -> None:
    log = record(lambda: torch.compile(Layer(), backend="eager")(torch.ones(3)))
    manager = only(log, "guards.manager")
    assert data(manager)["guards"] == len(guards(log)) > 30
    assert data(manager)["left_out"] == 0
    assert {event.cause for event in guards(log)} == {manager.seq}
    assert {event.stage for event in guards(log)} == {"guards"}
    weight = found(log, "TENSOR_MATCH", "L['self']._modules['linear']._parameters['weight']")
    assert weight["code"][0].startswith(
        "check_tensor(L['self']._modules['linear']._parameters['weight'], Parameter, "
    )
    assert weight["code"][0].endswith("requires_grad=True, size=[3, 3], stride=[3, 1])")
    assert weight["code"][1].endswith("'_dynamo_dynamic_indices') == False")
    assert (weight["types"], weight["class"]) == (["TENSOR_MATCH"], "torch.nn.parameter.Parameter")
    assert (weight["portable"], weight["object"]) == (True, None)
    tree = source(log, weight)
    assert (tree["source"], tree["index"]) == ("DictGetItemSource", "weight")
    assert (tree["base"]["source"], tree["base"]["member"]) == (
        "UnspecializedParamBufferSource", "_parameters",
    )  # fmt: skip
    decoded = decode_source(tree)
    assert decoded is not None
    assert decoded.name == weight["expression"]
    assert log.lost() == []


def test_every_source_is_the_one_of_its_expression(record: Record) -> None:
    log = record(lambda: torch.compile(Layer(), backend="eager")(torch.ones(3)))
    for event in guards(log):
        decoded = decode_source(source(log, data(event)))
        assert decoded is not None
        assert decoded.name == data(event)["expression"]
    rows = data(only(log, "guards.sources"))["rows"]
    assert len({json.dumps(row, sort_keys=True) for row in rows}) == len(rows)


def test_the_stack_of_a_guard_is_the_users(record: Record) -> None:
    log = record(lambda: torch.compile(Layer(), backend="eager")(torch.ones(3)))
    (event,) = [
        e for e in guards(log)
        if e.name == "CONSTANT_MATCH" and data(e)["expression"] == "G['Shape'].sides"
    ]  # fmt: skip
    (frame,) = queries.stack(log.store, event)
    assert (frame.file, frame.name) == (__file__, "forward")
    assert frame.line == Layer.forward.__code__.co_firstlineno + 4


def test_what_torch_cannot_write_down_is_described(record: Record) -> None:
    class Local(torch.nn.Module):
        def forward(self, x: torch.Tensor, f: Any) -> torch.Tensor:
            return f(torch.sin(x)) * len(str(helpers.scale)) * Shape().sides

    log = record(lambda: torch.compile(Local(), backend="eager")(torch.ones(3), double))
    place = f"({__file__}:{double.__code__.co_firstlineno})"
    closure = found(log, "CLOSURE_MATCH", "L['f']")
    assert closure["portable"] is False
    assert closure["object"] == f"{__name__}.double {place}"
    module = found(log, "MODULE_MATCH", "G['helpers']")
    assert (module["types"], module["object"]) == (["ID_MATCH"], "some_helpers")
    assert module["code"][0].startswith("___check_obj_id(G['helpers'], ")
    shape = found(log, "CLASS_MATCH", "G['Shape']")
    assert (shape["portable"], shape["object"]) == (False, f"{__name__}.Shape")
    builtins = [event for event in guards(log) if event.name == "BUILTIN_MATCH"]
    assert {data(event)["class"] for event in builtins} >= {"builtin_function_or_method"}
    assert not any(data(event)["portable"] for event in builtins)


class Scaled:
    """What is called like a function of torch's own, and is none."""

    __name__ = "scaled"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


scaled = torch._dynamo.allow_in_graph(Scaled())
pytree = torch.utils._pytree


def test_identities_and_versions_are_described(record: Record) -> None:
    """FUNCTION_MATCH, ID_MATCH and DICT_VERSION; no path of torch 2.13 makes NN_MODULE any more."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, list[type]]:
        return scaled(x), [kind for kind in pytree.SUPPORTED_NODES]  # noqa: C416

    log = record(lambda: torch.compile(f, backend="eager")(torch.ones(3)))
    function = found(log, "FUNCTION_MATCH", "G['scaled']")
    assert (function["portable"], function["types"]) == (False, ["ID_MATCH"])
    assert (function["class"], function["object"]) == (
        f"{__name__}.Scaled", f"an object of {__name__}.Scaled",
    )  # fmt: skip
    assert function["code"][0].startswith("___check_obj_id(G['scaled'], ")
    version = found(log, "DICT_KEYS_MATCH", "G['pytree'].SUPPORTED_NODES")
    assert (version["types"], version["portable"]) == (["DICT_VERSION"], False)
    assert version["code"][0].startswith("___dict_version(G['pytree'].SUPPORTED_NODES) == ")
    assert version["object"] == "an object of dict"
    identities = [data(event) for event in guards(log) if event.name == "ID_MATCH"]
    assert {item["portable"] for item in identities} == {False}
    assert "collections.namedtuple" in {item["object"].split(" ")[0] for item in identities}


def test_ambient_state_is_with_the_guards(record: Record) -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def program() -> None:
        with torch.no_grad(), Mode():
            torch.compile(double, backend="eager")(torch.ones(3, device="cpu"))

    log = record(program)
    ambient = data(only(log, "guards.ambient"))
    state = json.loads(ambient["global_state"])
    assert state["grad_mode"] is False
    assert state["deterministic_algorithms"] is False
    assert [name.rpartition(".")[2] for name in ambient["torch_functions"]] == ["Mode"]
    assert (ambient["device"], ambient["functorch"], ambient["dual_level"]) == (None, [], -1)
    assert {event.name for event in guards(log)} >= {
        "GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "GLOBAL_STATE", "TORCH_FUNCTION_STATE",
        "DEFAULT_DEVICE", "SHAPE_ENV", "AUTOGRAD_SAVED_TENSORS_HOOKS",
    }  # fmt: skip


def test_the_default_device_is_ambient_state(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.utils._device, "CURRENT_DEVICE", torch.device("meta"))
    log = record(lambda: torch.compile(double, backend="eager")(torch.ones(3, device="cpu")))
    assert data(only(log, "guards.ambient"))["device"] == "meta"
    assert found(log, "DEFAULT_DEVICE", "")["code"] == [
        "utils_device.CURRENT_DEVICE == device(type='meta')"
    ]


def test_functorch_transforms_are_ambient_state(record: Record) -> None:
    def program() -> None:
        compiled = torch.compile(double, backend="eager")
        torch.func.vmap(torch.func.grad(lambda x: compiled(x)))(torch.ones(3))

    log = record(program)
    layers = data(only(log, "guards.ambient"))["functorch"]
    assert [layer.rpartition(".")[2] for layer in layers] == ["Vmap", "Grad"]
    assert "FUNCTORCH_STACK_MATCH" in {event.name for event in guards(log)}


def test_shape_guards_are_the_code_of_one_guard(record: Record) -> None:
    def shaped(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 5 else x

    log = record(lambda: torch.compile(shaped, backend="eager", dynamic=True)(torch.ones(8, 3)))
    shapes = found(log, "SHAPE_ENV", "")
    assert "6 <= L['x'].size()[0]" in shapes["code"]
    assert source(log, shapes) == {"source": "ShapeEnvSource"}


def test_order_of_keys_and_aliasing_are_named(record: Record) -> None:
    def program() -> None:
        module = Layer()
        torch.compile(module, backend="eager")(torch.ones(3))

    log = record(program)
    manager = data(only(log, "guards.manager"))
    (ordered,) = manager["key_order"]
    assert (ordered["source"], ordered["member"]) == ("AttrSource", "extra")
    keys = found(log, "DICT_KEYS_MATCH", "L['self'].extra")
    assert keys["code"] == [
        "len(L['self'].extra) == 2", "list(dict.keys(L['self'].extra)) == ['first', 'second']",
    ]  # fmt: skip
    assert "L['x']" in manager["no_aliasing"]


def test_what_is_checked_first_and_whose_identity_counts(record: Record) -> None:
    def times(x: torch.Tensor, n: int) -> torch.Tensor:
        return scaled(x) * n

    def program() -> None:
        compiled = torch.compile(times, backend="eager", dynamic=False)
        for n in (2, 3):
            compiled(torch.ones(3), n)

    log = record(program)
    managers = queries.events(log.store, log.recording, "guards.manager")
    first, second = (data(event) for event in managers)
    assert ("L['x']" in first["differing"], "L['n']" in first["differing"]) == (True, False)
    assert {"L['x']", "L['n']"} <= set(second["differing"])
    assert (first["ids"], second["ids"]) == ([], [])


def test_inputs_that_are_one_tensor_have_a_guard_with_both_sources(record: Record) -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    def program() -> None:
        x = torch.ones(3)
        torch.compile(add, backend="eager")(x, x)

    log = record(program)
    guard = found(log, "DUPLICATE_INPUT", "L['y']")
    assert guard["code"] == ["L['x'] is L['y']"]
    assert guard["arguments"]["source_b"]["local_name"] == "x"


def test_memory_that_inputs_share_is_guarded_for_aot(record: Record) -> None:
    def mutate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    def program() -> None:
        base = torch.ones(8)
        torch.compile(mutate, backend="aot_eager", dynamic=True)(base[:4], base[4:])

    log = record(program)
    alias = only(log, "guards.alias")
    assert alias.name == "StorageOverlap"
    assert data(alias)["same"] == []
    assert [item["local_name"] for item in data(alias)["apart"]] == ["x", "y"]


def test_guards_that_the_program_filters_are_counted(record: Record) -> None:
    def keep(entries: Any) -> list[bool]:
        return [entry.guard_type != "TENSOR_MATCH" for entry in entries]

    options = {"guard_filter_fn": keep}
    log = record(lambda: torch.compile(double, backend="eager", options=options)(torch.ones(3)))
    assert data(only(log, "guards.manager"))["left_out"] == 1
    assert "TENSOR_MATCH" not in {event.name for event in guards(log)}
    assert guards(log) != []


def test_the_tree_itself_is_torchs_event(record: Record) -> None:
    log = record(lambda: torch.compile(double, backend="eager")(torch.ones(3)))
    tree = only(log, "dynamo_cpp_guards_str")
    assert tree.seq > guards(log)[-1].seq
    assert tree.payload is not None
    text = log.store.read_blob(tree.payload).decode()
    assert "TREE_GUARD_MANAGER" in text
    match = found(log, "TENSOR_MATCH", "L['x']")
    assert match["code"][0] in text


@pytest.mark.parametrize("place", [-1, 3])
def test_a_row_that_is_not_there_is_refused(place: int) -> None:
    with pytest.raises(UnsupportedError):
        expand_source([{"source": "ShapeEnvSource"}], place)


def test_a_table_that_refers_to_itself_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        expand_source([{"source": "AttrSource", "base": {"at": 0}}], 0)

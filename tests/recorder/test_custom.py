"""Custom operators, script objects and tensor subclasses in a graph, each described."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._library import fake_class_registry, opaque_object
from torch._opaque_base import OpaqueBase
from torch.testing._internal.two_tensor import TwoTensor

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event

NAMESPACE = "torchreel_custom"
TORCHBIND = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"


@torch.library.custom_op(f"{NAMESPACE}::mix", mutates_args=("out",))
def mix(x: torch.Tensor, out: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    out.add_(x)
    return x * scale


@mix.register_fake
def _fake_mix(x: torch.Tensor, out: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


class Handle(OpaqueBase):
    """An object that only its operators look into."""

    def __init__(self, number: int) -> None:
        self.number = number


opaque_object.register_opaque_type(Handle, typ="reference")


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """Operators that are defined by hand, without a tag."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("raw(Tensor x) -> Tensor")
    library.define("alias(Tensor(a) x) -> Tensor(a)")
    handle = opaque_object.get_opaque_type_name(Handle)
    library.define(f"use({handle} handle, Tensor x) -> Tensor")
    for name in ("raw", "alias"):
        library.impl(name, lambda x: x[:], "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", lambda x: x[:], lib=library)
    library.impl("use", lambda handle, x: x * handle.number, "CompositeExplicitAutograd")
    torch.library.register_fake(
        f"{NAMESPACE}::use", lambda handle, x: torch.empty_like(x), lib=library
    )
    yield library
    library._destroy()


def found(log: RecordedLog, kind: str) -> list[Event]:
    assert log.lost() == []
    return queries.events(log.store, log.compile, kind)


def data(event: Event) -> Any:
    return event.data


def test_an_operator_has_its_schema_and_what_it_promises(record: Record) -> None:
    def use(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return mix(x, y, 2.0) + mix(x, y)

    log = record(lambda: torch.compile(use, backend="eager")(torch.ones(3), torch.ones(3)))
    (operator,) = found(log, "custom.operator")
    assert operator.name == f"{NAMESPACE}.mix.default"
    line = mix._init_fn.__code__.co_firstlineno
    row = data(operator)
    assert row["fake"].startswith(f"{__file__}:")
    assert row == {
        "schema": f"{NAMESPACE}::mix(Tensor x, Tensor(a1!) out, float scale=1.) -> Tensor",
        "mutates": ["out"],
        "returns_alias": False,
        "tags": ["pt2_compliant_tag"],
        "compliant": True,
        "defined_in": f"{__name__}.mix ({__file__}:{line})",
        "fake": row["fake"],
        "kernels": ["Meta", "Autograd", "CompositeExplicitAutograd"],
        "calls": 2,
    }
    assert operator.stage == "dynamo"


def test_an_operator_of_a_library_says_where_it_is_defined(
    record: Record, library: torch.library.Library
) -> None:
    def use(x: torch.Tensor) -> torch.Tensor:
        operators = torch.ops.torchreel_custom
        return operators.alias(operators.raw(x)) + 1

    log = record(lambda: torch.compile(use, backend="eager")(torch.ones(3)))
    raw, alias = found(log, "custom.operator")
    assert (raw.name, alias.name) == (f"{NAMESPACE}.raw.default", f"{NAMESPACE}.alias.default")
    assert data(raw)["defined_in"].startswith(f"{__file__}:")
    assert (data(raw)["tags"], data(raw)["compliant"]) == ([], False)
    assert (data(raw)["mutates"], data(raw)["returns_alias"]) == ([], False)
    assert data(alias)["returns_alias"] is True
    assert data(alias)["schema"] == f"{NAMESPACE}::alias(Tensor(a) x) -> Tensor(a)"


def test_an_operator_in_a_body_is_found(record: Record) -> None:
    def use(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: mix(x, y.clone()), lambda x: x.cos(), (x,))

    log = record(lambda: torch.compile(use, backend="eager")(torch.ones(3), torch.ones(3)))
    assert [(e.name, data(e)["calls"]) for e in found(log, "custom.operator")] == [
        (f"{NAMESPACE}.mix.default", 1)
    ]


def test_torchs_own_operators_are_not_told(record: Record) -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.sin.default(x) + x.cos()

    log = record(lambda: torch.compile(plain, backend="eager")(torch.ones(3)))
    for kind in ("custom.operator", "custom.script_object", "custom.subclass"):
        assert found(log, kind) == []
    assert len(queries.graphs(log.store, log.compile)) == 1


def test_a_subclass_is_described_down_to_its_tensors(record: Record) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def program() -> None:
        inner = TwoTensor(torch.ones(3, 2), torch.zeros(3, 2))
        torch.compile(double, backend="aot_eager")(TwoTensor(torch.ones(3, 2), inner))

    log = record(program)
    (subclass,) = found(log, "custom.subclass")
    assert subclass.name == "l_x_"
    row = data(subclass)
    assert row["class"] == "torch.testing._internal.two_tensor.TwoTensor"
    assert (row["size"], row["stride"], row["dtype"]) == ([3, 2], [2, 1], "float32")
    assert (row["context"], row["values"], row["expression"]) == ("NoneType", {}, "L['x']")
    plain = {
        "class": "torch._subclasses.fake_tensor.FakeTensor",
        "size": [3, 2], "stride": [2, 1], "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    nested = {**plain, "class": row["class"], "context": "NoneType"}
    assert row["inner"] == {"a": plain, "b": {**nested, "inner": {"a": plain, "b": plain}}}


class Scaled(torch.Tensor):
    """A wrapper with a context."""

    inner: torch.Tensor
    scale: float

    @staticmethod
    def __new__(cls, inner: torch.Tensor, scale: float) -> "Scaled":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor, scale: float) -> None:
        self.inner, self.scale = inner, scale

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, float]]:
        return ["inner"], {"scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> "Scaled":
        return Scaled(inner["inner"], context["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [x.inner * x.scale if isinstance(x, Scaled) else x for x in args]
        return func(*plain, **(kwargs or {}))


def test_sizes_are_expressions_and_the_context_is_told(record: Record) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def program() -> None:
        compiled = torch.compile(double, backend="eager", dynamic=True)
        compiled(Scaled(torch.ones(4, 3), 0.5))

    log = record(program)
    (subclass,) = found(log, "custom.subclass")
    row = data(subclass)
    assert row["class"] == f"{__name__}.Scaled"
    assert all(isinstance(size, str) for size in row["size"])
    assert row["inner"]["inner"]["size"] == row["size"]
    assert (row["context"], row["values"]) == ("dict", {"scale": 0.5})


def test_a_subclass_is_not_printed_by_its_values(record: Record) -> None:
    """torch's trace prints metadata that has it: that would run operators, and fail in eager."""

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    counters.clear()
    log = record(lambda: torch.compile(double, backend="aot_eager")(Scaled(torch.ones(4, 3), 0.5)))
    assert log.compile.status == "ok"
    assert counters["aot_autograd"] == {"total": 1, "ok": 1}
    assert not counters["unimplemented"]
    events = queries.events(log.store, log.compile)
    (event,) = [item for item in events if item.name == "aot_forward_graph_fw_metadata"]
    assert event.payload is not None
    assert log.store.read_blob(event.payload) == b"not printed: it has values of Scaled"


def test_other_metadata_is_printed(record: Record) -> None:
    """That of training holds fake tensors, which torch prints without values."""

    def double(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    log = record(
        lambda: torch.compile(double, backend="aot_eager")(torch.ones(3, requires_grad=True))
    )
    events = queries.events(log.store, log.compile)
    found = [item for item in events if item.name.endswith("fw_metadata") and item.payload]
    texts = [log.store.read_blob(item.payload).decode() for item in found if item.payload]
    assert texts
    assert all(text.startswith("ViewAndMutationMeta(") for text in texts)


def test_an_opaque_object_is_named(record: Record, library: torch.library.Library) -> None:
    def use(handle: Handle, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchreel_custom.use(handle, x)

    log = record(lambda: torch.compile(use, backend="eager")(Handle(3), torch.ones(3)))
    (handle,) = found(log, "custom.script_object")
    assert data(handle) == {
        "class": opaque_object.get_opaque_type_name(Handle),
        "how": "opaque",
        "fake_class": None,
        "attributes": {},
        "expression": "L['handle']",
    }


@pytest.mark.skipif(not TORCHBIND.exists(), reason="a torch without its torchbind tests")
def test_a_script_object_has_its_fake_class(record: Record) -> None:
    torch.ops.load_library(str(TORCHBIND))
    name = "_TorchScriptTesting::_Foo"

    class FakeFoo:
        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y

        @classmethod
        def __obj_unflatten__(cls, flat: Any) -> "FakeFoo":
            return cls(**dict(flat))

        def add_tensor(self, z: torch.Tensor) -> torch.Tensor:
            return (self.x + self.y) * z

    def use(foo: Any, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = foo.add_tensor(x) + x
        return result

    foo = torch.classes._TorchScriptTesting._Foo(10, 20)
    fake_class_registry.register_fake_class(name, FakeFoo)
    try:
        log = record(lambda: torch.compile(use, backend="eager")(foo, torch.ones(3)))
    finally:
        fake_class_registry.deregister_fake_class(name)
    (event,) = found(log, "custom.script_object")
    assert data(event) == {
        "class": "__torch__.torch.classes._TorchScriptTesting._Foo",
        "how": "fake",
        "fake_class": f"{__name__}.{FakeFoo.__qualname__}",
        "attributes": {"x": "int", "y": "int"},
        "expression": "L['foo']",
    }

"""Custom operators, script objects and tensor subclasses: what a graph holds besides torch's own.

Lives here: what each of them is, seen when Dynamo's graph is handed over, so that a place where it
can't be imported knows enough of it.  Not here: the graph (`dynamo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Probe, Visit
from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes.guards import describe, type_name

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

GRAPH = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "Dynamo's graph on its way to the backend, with what its inputs really are",
)
_READS = (
    AttachPoint("torch._ops", "OpOverload", "which nodes call an operator"),
    AttachPoint("torch._ops", "OpOverloadPacket", "which nodes call one by its packet"),
    AttachPoint("torch._library.custom_ops", "OPDEFS", "operators that Python defines"),
    AttachPoint("torch._library.simple_registry", "singleton", "fake kernels in Python"),
    AttachPoint("torch._C", "_dispatch_dump", "where an operator is defined"),
    AttachPoint("torch._C", "_dispatch_has_kernel_for_dispatch_key", "which kernels it has"),
    AttachPoint("torch._C", "DisableTorchFunctionSubclass", "subclasses looked at from outside"),
    AttachPoint("torch._library.fake_class_registry", "FakeScriptObject", "fake script objects"),
    AttachPoint(
        "torch.utils._python_dispatch", "is_traceable_wrapper_subclass", "which tensors have inner"
    ),
)
ATTACH_POINTS = (GRAPH, *_READS)

OPERATOR = Kind(
    name="custom.operator",
    system=17,
    meaning="A graph calls an operator that torch itself does not define; the name is the "
    "operator with its overload.",
    fields={
        "schema": "its schema, with the annotations of aliasing and mutation",
        "mutates": "names of the arguments that it changes",
        "returns_alias": "whether a result is or views an argument",
        "tags": "its tags",
        "compliant": "whether it says that torch.compile can trust it (pt2_compliant_tag)",
        "defined_in": "module of the Python function, or place of the library, that defines it",
        "fake": "where its fake kernel comes from; null when there is none in Python",
        "kernels": "dispatch keys that it has kernels for",
        "calls": "number of nodes that call it, in all bodies",
    },
    points=(GRAPH,),
    pages=False,
    probe="custom",
)
SCRIPT_OBJECT = Kind(
    name="custom.script_object",
    system=17,
    meaning="A graph holds an object of a class registered with torch (torchbind), or an opaque "
    "one; the name is its node.",
    fields={
        "class": "its qualified name",
        "how": "'fake' (a fake class stands for it), 'real', or 'opaque'",
        "fake_class": "the class that stands for it, if one does",
        "attributes": "class of each attribute of the fake one; nothing is said of the values",
        "expression": "where it comes from, as Python; null for an attribute of the graph",
    },
    points=(GRAPH,),
    pages=False,
    probe="custom",
)
SUBCLASS = Kind(
    name="custom.subclass",
    system=17,
    meaning="A graph has a tensor of a traceable wrapper subclass for an input; the name is its "
    "node.",
    fields={
        "class": "its qualified name",
        "size": "its sizes",
        "stride": "its strides",
        "dtype": "its dtype",
        "inner": "the tensors within (fake ones, as the compiler sees them): class, sizes, "
        "strides, dtype and device by attribute; a subclass again has `inner` of its own",
        "context": "class of the constant context that it is rebuilt with",
        "values": "its members that are plain: numbers, truth values, dtypes, names",
        "expression": "where it comes from, as Python; null for an attribute of the graph",
    },
    points=(GRAPH,),
    pages=False,
    probe="custom",
)
KINDS = (OPERATOR, SCRIPT_OBJECT, SUBCLASS)

_TORCHS_OWN = frozenset({"aten", "prim", "prims", "higher_order", "inductor", "_inductor_test"})
"""Namespaces that every torch has: their operators are not described."""
_MOST_DEPTH = 8
"""Bodies within bodies, and tensors within tensors, that are looked into."""


def _graph(recorder: Recorder, call: Call) -> Visit:
    gm = call.argument(1, "gm")
    for operator, calls in _operators(gm).items():
        _note_operator(recorder, operator, calls)
    _note_inputs(recorder, gm)
    yield


def _operators(gm: Any) -> dict[Any, int]:
    """The custom operators of a graph and its bodies, with the number of their calls."""
    from torch._ops import OpOverload, OpOverloadPacket

    found: dict[Any, int] = {}
    for node in _nodes(gm, 0):
        target: Any = node.target
        if isinstance(target, OpOverloadPacket):
            namespace = target._qualified_op_name.partition("::")[0]
            if namespace in _TORCHS_OWN:
                continue
            target = getattr(target, _first_overload(target))
        if isinstance(target, OpOverload) and target.namespace not in _TORCHS_OWN:
            found[target] = found.get(target, 0) + 1
    return found


def _first_overload(packet: Any) -> str:
    return str(packet.overloads()[0])


def _nodes(gm: Any, depth: int) -> Iterator[Any]:
    for node in gm.graph.nodes:
        if node.op == "call_function":
            yield node
    if depth < _MOST_DEPTH:
        for _, child in gm.named_children():
            if hasattr(child, "graph"):
                yield from _nodes(child, depth + 1)


def _note_operator(recorder: Recorder, operator: Any, calls: int) -> None:
    schema = operator._schema
    alias = [result.alias_info for result in schema.returns]
    tags = tuple(sorted(str(tag).rpartition(".")[2] for tag in operator.tags))
    recorder.note(
        OPERATOR,
        str(operator),
        str(schema),
        tuple(argument.name for argument in schema.arguments if argument.is_write),
        any(info is not None for info in alias),
        tags,
        "pt2_compliant_tag" in tags,
        _definition(operator),
        _fake(operator),
        _kernels(operator),
        calls,
    )


def _definition(operator: Any) -> str | None:
    """Return the place where an operator is defined, if torch knows it."""
    import torch
    from torch._library.custom_ops import OPDEFS

    found = OPDEFS.get(operator._schema.name)
    if found is not None:
        return describe(found._init_fn)
    lines = torch._C._dispatch_dump(operator.name()).splitlines()
    places = [line.removeprefix(_PLACE) for line in lines if line.startswith(_PLACE)]
    return places[0] if places else None


def _fake(operator: Any) -> str | None:
    """Return the place where the fake kernel of an operator was registered."""
    from torch._library.simple_registry import singleton

    kernel = singleton.find(operator._schema.name).fake_impl.kernel
    return None if kernel is None else str(kernel.source)


_PLACE = "debug: registered at "
"""Beginning of the dispatcher's line on where a schema was registered (dumpState)."""
_KEYS = (
    "CPU", "CUDA", "Meta", "AutogradCPU", "Autograd", "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
)  # fmt: skip


def _kernels(operator: Any) -> tuple[str, ...]:
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(key for key in _KEYS if has(operator.name(), key))


def _note_inputs(recorder: Recorder, gm: Any) -> None:
    """Look at the inputs unseen by the program's modes and subclasses."""
    import torch

    from torchreel.torch_compat.fake_tensors import no_dispatch

    with no_dispatch(), torch._C.DisableTorchFunctionSubclass():
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                _note_input(recorder, node)


def _note_input(recorder: Recorder, node: Any) -> None:
    import torch
    from torch._library.fake_class_registry import FakeScriptObject
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    value = node.meta.get("example_value")
    source = getattr(node.meta.get("grapharg"), "source", None)
    expression = None if source is None else source.name
    if isinstance(value, (FakeScriptObject, torch.ScriptObject)):
        _note_script_object(recorder, node.name, value, expression)
    elif isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value):
        _note_subclass(recorder, node.name, value, expression)


def _note_script_object(recorder: Recorder, name: str, value: Any, expression: str | None) -> None:
    import torch

    fake = None if isinstance(value, torch.ScriptObject) else value
    if fake is None:
        recorder.note(SCRIPT_OBJECT, name, _script_name(value), "real", None, None, expression)
        return
    real, wrapped = fake.real_obj, fake.wrapped_obj
    how = "fake" if isinstance(real, torch.ScriptObject) else "opaque"
    members = getattr(wrapped, "__dict__", {}) if how == "fake" else {}
    attributes = {key: type_name(type(item)) for key, item in members.items()}
    fake_class = None if wrapped is None or how == "opaque" else type_name(type(wrapped))
    recorder.note(
        SCRIPT_OBJECT, name, fake.script_class_name, how, fake_class, attributes, expression
    )


def _script_name(value: Any) -> str:
    return str(value._type().qualified_name())


def _note_subclass(recorder: Recorder, name: str, value: Any, expression: str | None) -> None:
    tensors, context = value.__tensor_flatten__()
    recorder.note(
        SUBCLASS,
        name,
        type_name(type(value)),
        _sizes(value.size()),
        _sizes(value.stride()),
        value.dtype,
        {name: _inner(getattr(value, name), 1) for name in tensors},
        type_name(type(context)),
        _plain(context),
        expression,
    )


def _inner(tensor: Any, depth: int) -> dict[str, object]:
    """A tensor within, described: never its values."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    found: dict[str, object] = {
        "class": type_name(type(tensor)),
        "size": _sizes(tensor.size()),
        "stride": _sizes(tensor.stride()),
        "dtype": tensor.dtype,
        "device": str(tensor.device),
    }
    if depth < _MOST_DEPTH and is_traceable_wrapper_subclass(tensor):
        names, context = tensor.__tensor_flatten__()
        found["inner"] = {name: _inner(getattr(tensor, name), depth + 1) for name in names}
        found["context"] = type_name(type(context))
    return found


def _sizes(sizes: Any) -> tuple[object, ...]:
    """Numbers, or their expressions: a SymInt would hold its ShapeEnv."""
    return tuple(size if isinstance(size, int) else size.node._expr for size in sizes)


def _plain(context: Any) -> dict[str, object] | None:
    """Return the members of a context that are built-in values: no code of theirs runs."""
    import torch

    members = context if isinstance(context, dict) else getattr(context, "__dict__", {})
    kinds = (bool, int, float, str, torch.dtype)
    return {
        str(name): item for name, item in members.items() if item is None or isinstance(item, kinds)
    }


PROBES = (Probe(GRAPH, _graph),)

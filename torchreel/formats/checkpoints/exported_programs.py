"""An ExportedProgram without its graph, and the request to decompose it, as data.

Lives here: signature, ranges, calling convention, state and constants by description, tables of
decompositions.  Not here: the graph (`graphs`), the checkpoint with both (`checkpoints`), its
restoration (`torchreel.replay.child.restore`).

Decompositions are functions: those that torch has by default, or registered, go by the operator's
name.  The program's own are code, which a recording keeps apart.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export import graph_signature as signatures
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from torchreel.errors import UnsupportedError
from torchreel.formats import names, node_arguments, symbols
from torchreel.formats.checkpoints import decompositions
from torchreel.formats.checkpoints.decompositions import Tables
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.synthetic import synthesise_all
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import required_list
from torchreel.torch_compat import fx, shapes
from torchreel.torch_compat.export import exports
from torchreel.torch_compat.tensors import fake_tensors

KEY = "program"
"""Key in the `extra` of a checkpoint."""

_LITERAL = "lifted_tensor_"
"""Prefix of the names of constants that a `forward` makes, as by `torch.tensor([1, 2])`."""
_list = partial(required_list, what="the exported program")


@dataclass(frozen=True)
class DecompositionRequest:
    """One call that decomposes an exported program."""

    program: ExportedProgram
    tables: Tables
    loss: int | None
    """The index of the output that is the loss, where a joint graph is made."""
    triton: bool
    """True if Triton kernels are decomposed."""
    alive: tuple[object, ...] = ()
    """Objects that the fake mode knows by weak references, kept alive here."""


def encode(request: DecompositionRequest) -> dict[str, Json]:
    """Return a request as data, without the graph of its program."""
    program, encoder = request.program, Encoder()
    first: dict[int, str] = {}
    return {
        "inputs": [_encode_spec(spec) for spec in program.graph_signature.input_specs],
        "outputs": [_encode_spec(spec) for spec in program.graph_signature.output_specs],
        "ranges": [
            [symbols.encode_expr(key), _bound(found.lower), _bound(found.upper)]
            for key, found in program.range_constraints.items()
        ],
        "calls": [_encode_call(call) for call in program.module_call_graph],
        "state": _described(encoder, program.state_dict, first),
        "constants": _described(encoder, program.constants, first),
        "fakes": _fakes(program),
        "dialect": program.dialect,
        "example": program.example_inputs is not None,
        "tables": decompositions.encode(request.tables),
        "loss": request.loss,
        "triton": request.triton,
        "tracer_disabled": fx.is_tracer_disabled(),
    }


def _bound(value: object) -> Json:
    return symbols.encode_expr(value)


def _described(encoder: Encoder, tensors: Mapping[str, Any], first: dict[int, str]) -> list[Json]:
    """Return name and description of each tensor, and the name under which it came first.

    A constant that stands in the code of a module is described with its values.
    """
    return [
        [
            name,
            encoder.describe(value, literal=name.startswith(_LITERAL)),
            first.setdefault(id(value), name),
        ]
        for name, value in tensors.items()
    ]


def _fakes(program: ExportedProgram) -> list[Json]:
    """Return how the fake of each input relates to its real tensor in the fake mode.

    A replay need not make those again that the mode knows.
    """
    tensors = {**program.constants, **program.state_dict}
    found: list[Json] = []
    for node, spec in _placeholders(program.graph_module, program.graph_signature.input_specs):
        real = tensors.get(spec.target or "")
        found.append(fake_tensors.known_of_fake(node.meta.get("val"), real))
    return found


def _placeholders(
    graph: GraphModule, inputs: Sequence[signatures.InputSpec]
) -> Iterator[tuple[Node, signatures.InputSpec]]:
    return zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True)


def _encode_spec(spec: Any) -> dict[str, Json]:
    found: dict[str, Json] = {
        "kind": spec.kind.name, "arg": _encode_argument(spec.arg), "target": spec.target,
    }  # fmt: skip
    return {**found, "persistent": spec.persistent} if hasattr(spec, "persistent") else found


def _encode_argument(argument: Any) -> dict[str, Json]:
    found: dict[str, Json] = {"kind": type(argument).__name__, "name": argument.name}
    if isinstance(argument, signatures.ConstantArgument):
        found["value"] = node_arguments.encode_value(argument.value)
    return found


def _encode_call(call: ModuleCallEntry) -> dict[str, Json]:
    found = call.signature
    if found is None:
        return {"path": call.fqn}
    arguments: list[Json] = [*found.forward_arg_names] if found.forward_arg_names else []
    return {
        "path": call.fqn,
        "inputs": [_encode_argument(item) for item in found.inputs],
        "outputs": [_encode_argument(item) for item in found.outputs],
        "in": _encode_structure(found.in_spec),
        "out": _encode_structure(found.out_spec),
        "arguments": arguments if found.forward_arg_names is not None else None,
    }


def _encode_structure(spec: pytree.TreeSpec) -> Json:
    """Return a structure as one that has zeros for leaves."""
    return node_arguments.encode_value(pytree.tree_unflatten([0] * spec.num_leaves, spec))


def decode(
    doc: Mapping[str, Json],
    graph: GraphModule,
    table: symbols.Symbols,
    hints: Mapping[str, Json],
    own: Mapping[str, Callable[[], object]],
) -> DecompositionRequest:
    """Return a request with a program of this graph; its tensors have invented values.

    `own` loads the program's own decompositions.  Raises `UnsupportedError` for what is malformed
    or has no portable form, and what `decompositions.decode` raises.
    """
    inputs = [_input_spec(item) for item in _objects(doc, "inputs")]
    outputs = [_output_spec(item) for item in _objects(doc, "outputs")]
    calls = [_call(item) for item in _objects(doc, "calls")]
    if not calls or calls[0].signature is None or calls[0].fqn:
        raise UnsupportedError("the exported program says nothing of how it is called")
    _check_strings(graph)
    state, constants = _tensors(doc, table, hints)
    spec = calls[0].signature.in_spec
    program = ExportedProgram(
        graph,
        graph.graph,
        signatures.ExportGraphSignature(inputs, outputs),
        state,
        dict(_ranges(doc, table)),
        calls,
        _example(graph, inputs, spec) if doc.get("example") else None,
        constants,
        verifiers=[exports.export_verifier(str(doc.get("dialect")))],
    )
    if doc.get("tracer_disabled"):
        fx.disable_tracer()
    alive = tuple(_know_fakes(doc, graph, inputs, {**constants, **state}))
    for code in exports.guards_of_export(program):
        check_guard(code)
    loss = doc.get("loss")
    tables = decompositions.decode(doc.get("tables"), own)
    where = loss if type(loss) is int else None
    return DecompositionRequest(program, tables, where, bool(doc.get("triton")), alive)


def _know_fakes(
    doc: Mapping[str, Json],
    graph: GraphModule,
    inputs: Sequence[signatures.InputSpec],
    tensors: Mapping[str, Any],
) -> Iterator[object]:
    """Tell the fake mode which fake tensors those of the state and the constants are."""
    for (node, spec), known in zip(_placeholders(graph, inputs), _list(doc, "fakes"), strict=True):
        real = tensors.get(spec.target or "")
        if isinstance(real, torch.Tensor):
            yield fake_tensors.set_known_of_fake(node.meta.get("val"), real, str(known))


def _example(
    graph: GraphModule, inputs: Sequence[signatures.InputSpec], spec: pytree.TreeSpec
) -> Any:
    """Return the arguments that the program was exported with: torch reads their structure
    alone.
    """
    leaves = [
        node.meta.get("val")
        for node, found in _placeholders(graph, inputs)
        if found.kind is signatures.InputKind.USER_INPUT
    ]
    return pytree.tree_unflatten(leaves, spec)


def _tensors(
    doc: Mapping[str, Json], table: symbols.Symbols, hints: Mapping[str, Json]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state and the constants; those that shared a storage share one again."""
    rows = [(key, *_row(row)) for key in ("state", "constants") for row in _list(doc, key)]
    made = synthesise_all([row[2] for row in rows], seed=0, hints=hints, table=table)
    each = {row[3]: row[2] for row in rows}.values()
    uses = Counter(str(one.get("storage")) for one in each if isinstance(one, Mapping))
    found: dict[str, dict[str, Any]] = {"state": {}, "constants": {}}
    objects: dict[str, Any] = {}
    for (key, name, description, first), value in zip(rows, made, strict=True):
        if first not in objects:
            objects[first] = _owned(value, description, uses)
        found[key][names.check_member(name)] = objects[first]
    return found["state"], found["constants"]


def _owned(value: Any, description: Json, uses: Mapping[str, int]) -> object:
    """Return a tensor as a module has it: no view of a storage that nobody shares, or a
    parameter.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(description, Mapping):
        return value
    wants = value.requires_grad
    if uses[str(description.get("storage"))] == 1 and value.layout is torch.strided:
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
        value = made.copy_(value.detach())
    if description.get("parameter"):
        return torch.nn.Parameter(value.detach(), requires_grad=wants)
    return value.requires_grad_(wants)


def _row(row: Json) -> tuple[str, Json, str]:
    if not isinstance(row, list) or len(row) != 3:
        raise UnsupportedError(f"malformed tensor of an exported program {row!r:.80}")
    return str(row[0]), row[1], str(row[2])


def _ranges(doc: Mapping[str, Json], table: symbols.Symbols) -> Iterator[tuple[Any, Any]]:
    for row in _list(doc, "ranges"):
        if not isinstance(row, list) or len(row) != 3:
            raise UnsupportedError(f"malformed range {row!r:.80}")
        symbol, lower, upper = (symbols.decode_expr(item, table) for item in row)
        yield symbol, shapes.ValueRanges(lower, upper)


def _input_spec(data: Mapping[str, Json]) -> signatures.InputSpec:
    kind = _member(signatures.InputKind, data.get("kind"))
    persistent = data.get("persistent")
    kept = None if persistent is None else bool(persistent)
    return signatures.InputSpec(kind, _argument(data.get("arg")), _target(data), kept)


def _output_spec(data: Mapping[str, Json]) -> signatures.OutputSpec:
    kind = _member(signatures.OutputKind, data.get("kind"))
    return signatures.OutputSpec(kind, _argument(data.get("arg")), _target(data))


def _target(data: Mapping[str, Json]) -> str | None:
    target = data.get("target")
    return None if target is None else names.check_member(str(target))


def _member(kind: Any, name: Json) -> Any:
    found = kind.__members__.get(str(name))
    if found is None or found.name == "CUSTOM_OBJ":
        raise UnsupportedError(f"an exported program has a part that is not data: {name!r:.80}")
    return found


_ARGUMENTS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        signatures.TensorArgument, signatures.SymIntArgument, signatures.SymFloatArgument,
        signatures.SymBoolArgument, signatures.TokenArgument,
    )
}  # fmt: skip


def _argument(data: Json) -> Any:
    if not isinstance(data, Mapping):
        raise UnsupportedError(f"malformed argument of an exported program {data!r:.80}")
    kind, name = str(data.get("kind")), str(data.get("name"))
    if kind == signatures.ConstantArgument.__name__:
        value: Any = node_arguments.decode_value(data.get("value"), _no_leaf)
        return signatures.ConstantArgument(names.check_name(name) if name else name, value)
    if kind not in _ARGUMENTS:
        raise UnsupportedError(f"an exported program takes what is not data: {kind!r:.80}")
    return _ARGUMENTS[kind](names.check_name(name))


def _call(data: Mapping[str, Json]) -> ModuleCallEntry:
    path = str(data.get("path", ""))
    if path:
        names.check_member(path)
    if "in" not in data:
        return ModuleCallEntry(path)
    given = data.get("arguments")
    words = [] if given is None else _list(data, "arguments")
    arguments = [names.check_name(str(word)) for word in words]
    return ModuleCallEntry(
        path,
        ModuleCallSignature(
            [_argument(item) for item in _list(data, "inputs")],
            [_argument(item) for item in _list(data, "outputs")],
            _structure(data["in"]),
            _structure(data.get("out")),
            None if given is None else arguments,
        ),
    )


def _structure(data: Json) -> pytree.TreeSpec:
    found = node_arguments.decode_value(data, _no_leaf)
    _check_keys(found)
    return pytree.tree_structure(found)


def _check_keys(structure: object) -> None:
    """Refuse keys that would be code once torch has written them into a function."""
    if isinstance(structure, dict):
        for key, value in structure.items():
            if not isinstance(key, (str, int)):
                raise UnsupportedError(f"an argument has the key {key!r:.80}, which is not data")
            _check_keys(value)
    elif isinstance(structure, (list, tuple)):
        for value in structure:
            _check_keys(value)


def _check_strings(graph: GraphModule) -> None:
    """Refuse strings that torch would write, as they are, into the function that checks inputs."""
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, str) and not value.replace("_", "").replace(".", "").isalnum():
            raise UnsupportedError(f"an input is the string {value!r:.60}: it may be code")


_GUARD = (
    ast.Expression, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop, ast.Constant, ast.Subscript, ast.Load, ast.Call, ast.Name, ast.Attribute,
)  # fmt: skip
_MEMBERS = frozenset({"size", "stride", "storage_offset", "floor", "ceil", "trunc", "sqrt", "inf"})
_NAMES = frozenset({"L", "math", "min", "max", "float", "int", "round"})


def check_guard(code: str) -> None:
    """Refuse a guard that does more than compare sizes: torch runs what it makes from sources."""
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedError(f"a guard of the exported program is none: {error}") from error
    for node in ast.walk(tree):
        known = isinstance(node, _GUARD)
        if isinstance(node, ast.Name):
            known = node.id in _NAMES
        elif isinstance(node, ast.Attribute):
            known = node.attr in _MEMBERS
        if not known:
            raise UnsupportedError(f"a guard of the exported program is not data: {code!r:.120}")


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(
        f"an exported program holds {kind!r}, which has no portable form: {data!r:.120}"
    )


def _objects(doc: Mapping[str, Json], key: str) -> list[Mapping[str, Json]]:
    found = [item for item in _list(doc, key) if isinstance(item, Mapping)]
    if len(found) != len(_list(doc, key)):
        raise UnsupportedError(f"the exported program's list {key!r} is malformed")
    return found

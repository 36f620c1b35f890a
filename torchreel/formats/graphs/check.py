"""The check of a whole graph: what each node computes, and whether it may.

Lives here: `check_graph`, which walks over a graph as data and knows the kind of each value.
Called before a graph is built (`formats.graphs`) and before it is written as a script
(`minifier.repro`).

The kinds follow from the inputs as they are decoded and from what is called: what a store says of
the values in between (`meta`) is not looked at.  All values are data, except for the two ends of a
region, nested graphs and operators given to higher-order operators; none of those is looked into.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
import torch._ops

from torchreel.errors import ForbiddenError, RefusedError
from torchreel.formats import autograd_nodes, namespaces, numpy_calls, placements, targets
from torchreel.formats.allowed import enumerations, functions, members, strings, value_kinds
from torchreel.formats.allowed.value_kinds import ValueKind
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat import fx

_T = TypeVar("_T")

# Keywords that the constructor of a tensor takes; another one is the address of a tensor in memory.
_OF_CONSTRUCTORS = frozenset({"device", "data", "requires_grad"})


def check_graph(
    graph: GraphDoc, inputs: Sequence[Json] | None = None, imports: Sequence[str] = ()
) -> dict[str, ValueKind]:
    """Return the kind of each node of a graph all of whose calls are allowed, by name.

    `inputs` are the descriptions of its inputs, where they are known.  With `imports` (modules, or
    operators that a script defines), operators of other namespaces need not be registered yet.
    Raises `ForbiddenError` with the node and the reason, and what `targets.decode_target` raises.
    """
    placeholders = graph.placeholders
    if inputs is None or len(inputs) != len(placeholders):
        given = [value_kinds.DATA] * len(placeholders)
    else:
        given = [value_kinds.of_description(description) for description in inputs]
    return _Check(graph, given, bool(imports)).run()


class _Check:
    def __init__(self, graph: GraphDoc, inputs: Sequence[ValueKind], imports: bool) -> None:
        self.graph, self.imports = graph, imports
        self._inputs = iter(inputs)
        self.known: dict[str, ValueKind] = {}

    def run(self) -> dict[str, ValueKind]:
        for node in self.graph.nodes:
            if node.name in self.known:
                raise ForbiddenError(f"the graph has two nodes named {node.name!r:.60}")
            try:
                self.known[node.name] = self._node(node)
            except RefusedError as error:
                raise type(error)(f"the node {node.name!r:.60} is refused: {error}") from error
        return self.known

    def _node(self, node: NodeDoc) -> ValueKind:
        args = [value_kinds.of_literal(tree, self.known) for tree in _sequence(node.args)]
        given = as_object(node.kwargs)
        named = {key: value_kinds.of_literal(tree, self.known) for key, tree in given.items()}
        match node.op:
            case "placeholder":
                return next(self._inputs)
            case "output":
                return value_kinds.union(args)
            case "get_attr":
                return self._attribute(node)
            case "call_module":
                _check_operands([*args, *named.values()], value_kinds.NO_DATA)
                return self._body(node.target)
            case "call_method":
                return self._method(node, args, named)
            case "call_function":
                return self._function(node, args, named)
        raise ForbiddenError(f"unknown kind of node {node.op!r:.40}")

    def _attribute(self, node: NodeDoc) -> ValueKind:
        if node.target in self.graph.modules:
            return value_kinds.of("module")
        if node.target in self.graph.attributes:
            return value_kinds.of_description(self.graph.attributes[node.target])
        raise ForbiddenError(f"the graph holds no attribute {node.target!r:.60}")

    def _body(self, target: str) -> ValueKind:
        """Return the kind of what a nested graph returns, whatever data it is given."""
        body = self.graph.modules.get(target)
        if body is None:
            raise ForbiddenError(
                f"the graph calls the module {target!r:.60}, which has no portable form"
            )
        known = _Check(body, [value_kinds.DATA] * len(body.placeholders), self.imports).run()
        returned = value_kinds.union(known[node.name] for node in body.nodes if node.op == "output")
        _check_operands([returned], value_kinds.NO_DATA)
        return ValueKind(returned.everything, returned.everything)

    def _method(
        self, node: NodeDoc, args: Sequence[ValueKind], named: Mapping[str, ValueKind]
    ) -> ValueKind:
        _check_receiver(node)
        if args[0] == value_kinds.MESH and node.target == "__getitem__":
            return _part_of_mesh(node)
        name = members.check_method(node.target, args[0])
        _check_operands([*args, *named.values()], value_kinds.NO_DATA)
        _check_constructor(name, node) if name == "new" else None
        strings.check_method(name, _sequence(node.args), as_object(node.kwargs))
        self._check_numbers(node, name, getattr(torch.Tensor, name, None), [*args, *named.values()])
        found = value_kinds.RESULT | value_kinds.item(args[0])
        return found | value_kinds.of("str") if name in members.NAMING else found

    def _function(
        self, node: NodeDoc, args: Sequence[ValueKind], named: Mapping[str, ValueKind]
    ) -> ValueKind:
        tag, _, name = node.target.partition(":")
        every, given = [*args, *named.values()], as_object(node.kwargs)
        if tag == "hop":
            return self._higher_order(node, every)
        if targets.is_admitted(node.target):
            return value_kinds.RESULT
        if tag in ("op", "packet"):
            _check_operands(every, value_kinds.NO_DATA)
            return self._operator(node, every)
        function = targets.decode_target(node.target)
        if node.target.startswith(numpy_calls.TAG):
            _check_operands(every, value_kinds.NO_DATA)
            trees, held = _sequence(node.args), [*named.values()]
            return numpy_calls.check(node.target, trees, given, args, held)
        denied = value_kinds.NO_DATA - ({"opaque"} if functions.takes_objects(name) else set())
        _check_operands(every, denied)
        if functions.is_python(name):
            return _python(node, args)
        if method := functions.method_of(name):
            return self._method(replace(node, target=method), args, named)
        if functions.is_class(name):
            _check_constructor(name, node)
        strings.check_function(name, function, _sequence(node.args), given)
        self._check_numbers(node, name, function, every)
        return functions.result(name, function, every)

    def _operator(self, node: NodeDoc, every: Sequence[ValueKind]) -> ValueKind:
        if self.imports and namespaces.is_custom(node.target):
            return value_kinds.RESULT  # of a module that the user named
        operator = targets.decode_target(node.target)
        args, kwargs = _sequence(node.args), as_object(node.kwargs)
        if isinstance(operator, torch._ops.OpOverload):
            schemas = [operator._schema]
        else:
            assert isinstance(operator, torch._ops.OpOverloadPacket)
            schemas = list(operator._schemas.values())
        strings.check_operator(schemas[0].name, args, kwargs)
        found = value_kinds.union(map(value_kinds.of_results, schemas))
        if any(schema.is_mutable for schema in schemas):
            found |= value_kinds.union(every)  # it gives back what it was given, be it a number
        given = _by_place(every, [*kwargs])
        enumerations.check_operator(schemas, _by_place([*args, *kwargs.values()], [*kwargs]), given)
        found |= value_kinds.union(kind for schema in schemas for kind in _viewed(schema, given))
        # Of a packet, the overload for texts and dictionaries of TorchScript is never the one.
        return found if len(schemas) == 1 else ValueKind(found.types - {"opaque"} or found.types)

    def _higher_order(self, node: NodeDoc, every: Sequence[ValueKind]) -> ValueKind:
        name = node.target.removeprefix("hop:")
        targets.decode_target(node.target)
        _check_operands(every, frozenset({"opaque"}))
        args, kwargs = _sequence(node.args), as_object(node.kwargs)
        strings.check_higher_order(name, args, kwargs)
        for function in _functions([args, kwargs]):
            if not function.startswith(("op:", "hop:")):
                raise ForbiddenError(f"{name!r:.60} is given the function {function!r:.60}")
            targets.decode_target(function)
        self._check_handed_on(name, args, kwargs, every)
        if name == "triton_kernel_wrapper_functional":
            return value_kinds.TABLE
        bodies = [self._body(target) for target in self._operands(node)]
        return value_kinds.DATA | value_kinds.union(bodies)

    def _check_handed_on(
        self,
        name: str,
        args: Sequence[Json],
        kwargs: Mapping[str, Json],
        every: Sequence[ValueKind],
    ) -> None:
        """Check what an operator is called with that a higher-order one is given."""
        trees, keywords = [*args, *kwargs.values()], [*kwargs]
        for place, tree in enumerate(trees, 1):
            after = min(place, len(args))
            literals, given = _by_place(trees[after:], keywords), _by_place(every[after:], keywords)
            for function in _functions(tree):
                if function.startswith("op:"):
                    schema = targets.decode_target(function)._schema  # type: ignore[attr-defined]
                    enumerations.check_handed_on(name, schema, literals, given)

    def _check_numbers(
        self, node: NodeDoc, name: str, function: object, every: Sequence[ValueKind]
    ) -> None:
        args, kwargs = _sequence(node.args), as_object(node.kwargs)
        if name.startswith(autograd_nodes.PREFIX):
            enumerations.check_backward(name.removeprefix(autograd_nodes.PREFIX), args)
        trees, keywords = [*args, *kwargs.values()], [*kwargs]
        literals, given = _by_place(trees, keywords), _by_place(every, keywords)
        enumerations.check_function(name, function, literals, given)

    def _operands(self, node: NodeDoc) -> Iterable[str]:
        """Yield the nested graphs among the operands of a node."""
        for name in dict.fromkeys(node.inputs()):
            found = self.graph.by_name[name]
            if found.op == "get_attr" and found.target in self.graph.modules:
                yield found.target


def _viewed(
    schema: torch.FunctionSchema, given: Mapping[int | str, ValueKind]
) -> Iterator[ValueKind]:
    """Yield the arguments that a result may be: `aten.to(True)` gives back no tensor, but True."""
    if any(one.alias_info is not None for one in schema.returns):
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is not None:
                yield from (given[key] for key in (place, argument.name) if key in given)


def _python(node: NodeDoc, args: Sequence[ValueKind]) -> ValueKind:
    """Return a call of one of Python's own functions: without keywords, and without text."""
    trees = _sequence(node.args)
    name = node.target.partition(":")[2].replace("_operator.", "operator.")
    if node.kwargs:
        raise ForbiddenError(f"{node.target!r} takes no keywords in a graph")
    _check_count(node, trees)
    if name == "operator.getitem" and args[0] == value_kinds.MESH:
        return _part_of_mesh(node)
    if name == "operator.getitem" and args[0] == value_kinds.TABLE:
        return _written(trees[1])
    if name in fx.inplace_operators() or name == "builtins.getattr":
        _check_receiver(node)
    if node.target == "fn:builtins.getattr":
        if len(trees) != 2 or not isinstance(trees[1], str):
            raise ForbiddenError("getattr takes a value and the name of an attribute, as a text")
        return members.check_attribute(trees[1], args[0])
    for text in strings.texts_of(trees):
        raise ForbiddenError(f"{node.target!r} takes no text, found {text!r:.80}")
    if any(kind.types == {"str"} for kind in args):
        raise ForbiddenError(f"{node.target!r} is called on a text")
    return value_kinds.RESULT | value_kinds.union(map(value_kinds.item, args))


def _written(key: Json) -> ValueKind:
    """Return the kind of what a Triton kernel wrote for an argument, which is named by a text."""
    if not isinstance(key, str) or not key.isidentifier():
        raise ForbiddenError(f"an argument of a Triton kernel has a name, found {key!a:.60}")
    return value_kinds.TENSOR


def _part_of_mesh(node: NodeDoc) -> ValueKind:
    """Return a mesh that is cut out of another by the names of dimensions, which are texts."""
    _, *names = _sequence(node.args)
    given = names[0] if len(names) == 1 and not node.kwargs else None
    listed = given.get("t") if isinstance(given, Mapping) and len(given) == 1 else [given]
    if not isinstance(listed, list) or not listed:
        raise ForbiddenError(f"a mesh of devices has no part {given!a:.60}")
    for name in listed:
        placements.check_name(name)
    return value_kinds.MESH


def _check_receiver(node: NodeDoc) -> None:
    """Refuse a call on a literal: FX writes it as it stands, and `1.real` is no Python."""
    first = next(iter(_sequence(node.args)), None)
    if not isinstance(first, Mapping) or set(first) != {"n"}:
        raise ForbiddenError(f"{node.target!r:.60} is called on no value of the graph")


def _check_count(node: NodeDoc, trees: Sequence[Json]) -> None:
    """Refuse a call with too few or too many arguments: FX writes some of these as operators."""
    try:
        inspect.signature(targets.decode_target(node.target)).bind(*trees)
    except TypeError as error:
        raise ForbiddenError(f"{node.target!r} is given {len(trees)} arguments") from error
    except ValueError:  # no signature is known: `max(a, b, ...)`
        return


def _check_operands(operands: Iterable[ValueKind], denied: frozenset[str]) -> None:
    found = value_kinds.union(operands).everything & denied
    if found:
        raise ForbiddenError(f"it is given {value_kinds.of(*found)}, where only data may stand")


def _check_constructor(name: str, node: NodeDoc) -> None:
    wrong = set(as_object(node.kwargs)) - _OF_CONSTRUCTORS
    if wrong:
        raise ForbiddenError(f"{name!r:.60} takes no keyword {sorted(wrong)[0]!r:.40}")


def _by_place(values: Sequence[_T], keywords: Sequence[str]) -> dict[int | str, _T]:
    """Return the arguments of a call, of which the last have these keywords."""
    places = len(values) - len(keywords)
    return dict(zip([*range(places), *keywords], values, strict=True))


def _functions(tree: Json) -> Iterable[str]:
    """Yield the functions in the arguments of a node."""
    if isinstance(tree, (list, tuple)):
        for held in tree:
            yield from _functions(held)
    elif isinstance(tree, Mapping):
        if set(tree) == {"fn"}:
            yield str(tree["fn"])
        else:
            for held in tree.values():
                yield from _functions(held)


def _sequence(data: Json) -> Sequence[Json]:
    if not isinstance(data, (list, tuple)):
        raise ForbiddenError(f"expected a list of arguments, found {data!r:.80}")
    return data

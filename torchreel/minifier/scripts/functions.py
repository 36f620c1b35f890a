"""A graph as the source of a Python function.

Lives here: one statement per node, bodies of higher-order operators as nested functions. Not here:
expressions (`store.documents.spelling`), names (`names`), what surrounds the function (`script`).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_identifier
from torchreel.formats import names, node_arguments, numpy_calls, targets
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.node_arguments import map_tree
from torchreel.minifier.cases.descriptions import is_symbolic
from torchreel.minifier.cases.graph_edits import users_of
from torchreel.minifier.cases.side_effects import is_effectful
from torchreel.minifier.scripts import kernels
from torchreel.minifier.scripts.names import public_target, variables
from torchreel.minifier.scripts.policies import Policies
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

INDENT = "    "
_SET = "fn:torch.Tensor.set_"
# A call that lowers the version of what was set by one, as the assignment does.
_END_OF_SET = ".<locals>._lower_version_count_by_1"
# Longer expressions get a line, and a variable, of their own.
_SHORT = 60


@dataclass
class Function:
    """The source of a function, and the constants that it needs beside it."""

    lines: list[str]
    parameters: list[str]
    constants: dict[str, Json] = field(default_factory=dict)
    """Descriptions of tensors whose values are not known, by variable."""
    policies: list[str] = field(default_factory=list)
    """Functions that regions of activation checkpointing are given."""


def function(
    name: str,
    graph: GraphDoc,
    imports: tuple[str, ...] = (),
    *,
    bare: bool = False,
    touch: bool = False,
) -> Function:
    """Return a graph as `def name(...)`. Raises `UnsupportedError` for what has no such spelling.

    `bare`: a single result is returned as it is, not in a tuple. `touch`: a body uses each tensor
    that it closes over, even if only in vain (Dynamo makes inputs of a body of those alone), and
    returns copies of its inputs.
    """
    writer = _Writer(graph, imports, Policies(imports), touch=touch)
    writer.bare = bare
    head = f"def {name}({', '.join(writer.parameters)}):"
    lines = [head, *_indented(writer.body())]
    return Function(lines, writer.parameters, writer.constants, writer.policies.lines)


def _indented(lines: Iterator[str]) -> list[str]:
    return [textwrap.indent(line, INDENT) for line in _tidy(lines)]


def _tidy(lines: Iterator[str]) -> Iterator[str]:
    """Leave out blank lines at the start, and all but one between two others."""
    blank = True
    for line in lines:
        if line or not blank:
            yield line
        blank = not line


class _Writer:
    """Writes one graph; `closed` names the surrounding variables that stand for inputs of it."""

    def __init__(
        self,
        graph: GraphDoc,
        imports: tuple[str, ...],
        policies: Policies,
        closed: Mapping[str, str] | None = None,
        *,
        touch: bool = False,
    ) -> None:
        self.graph, self.imports, self.touch = graph, imports, touch
        self.policies = policies
        self.closed = closed or {}
        self.names = {**variables(graph, self.closed.values()), **self.closed}
        self.users = users_of(graph)
        self.constants: dict[str, Json] = {}
        self.bare = False
        self.is_body = False
        self._sizes = derived_sizes(graph)
        self._passed_on = _passed_on(graph)
        self._expressions: dict[str, str] = {}  # of nodes that stand where their value is used
        self._depth: dict[str, int] = {}  # how many calls there are within each other in those

    @property
    def parameters(self) -> list[str]:
        """Return the parameters: every input but those that a size of another one gives."""
        kept = [n.name for n in self.graph.placeholders if n.name not in self._sizes]
        return [self.names[name] for name in kept if name not in self.closed]

    def body(self) -> Iterator[str]:
        """Yield the statements of the function."""
        for name, (tensor, dim) in self._sizes.items():
            if name in self.users:
                yield f"{self.names[name]} = {self.names[tensor]}.size({dim})"
        for name, outer in self.closed.items() if self.touch else ():
            if name not in self.users and _is_tensor_input(self.graph, name):
                yield f"{outer} + 0  # used in vain, so that it is an input of this body"
        for node in self.graph.placeholders if self.touch and not self.is_body else ():
            if node.name not in self.users and _is_tensor_input(self.graph, node.name):
                yield f"{self.names[node.name]} + 0  # used in vain, so that it is an input"
        for node in self.graph.nodes:
            yield from self._statements(node)

    def _statements(self, node: NodeDoc) -> Iterator[str]:
        if node.op == "placeholder":
            return
        check_arguments(node)
        if node.op == "output":
            if not self.bare or _items(as_list(node.args)[0] if as_list(node.args) else None):
                yield f"return {self._returned(node)}"
        elif node.op == "get_attr":
            yield from self._constant(node)
        elif node.op == "call_module":
            yield from self._definition(node.name, node.target)
            yield from self._assigned(node, f"{self.names[node.name]}({self._arguments(node)})")
        elif node.target.startswith("hop:"):
            yield from self._higher_order(node)
        elif node.target == _SET:
            yield self._data(node)
        elif node.target.endswith(_END_OF_SET):
            return
        else:
            yield from self._call(node)

    def _assigned(self, node: NodeDoc, text: str) -> Iterator[str]:
        """Add `y = text`; nothing yet, if the next statement is the only one that uses it."""
        if node.name not in self.users:
            yield text
            return
        depth = 1 + max((self._depth.get(name, 0) for name in node.inputs()), default=0)
        most = 2 if node.name in self.graph.output.inputs() else 1
        if node.name in self._passed_on and len(text) <= _SHORT and depth <= most:
            self._expressions[node.name] = text
            self._depth[node.name] = depth
        else:
            yield f"{self.names[node.name]} = {text}"

    def _returned(self, node: NodeDoc) -> str:
        value = as_list(node.args)[0] if as_list(node.args) else None
        items = _items(value)
        if self.touch and self.is_body:
            value = map_tree(value, self._cloned)
            items = _items(value)
        if self.bare and len(items) == 1:
            return self._argument(items[0])
        return self._argument({"t": value} if isinstance(value, list) else value)

    def _cloned(self, name: str) -> Json:
        """Return the outputs of a body, with inputs cloned: Dynamo refuses an input as it is."""
        if self.graph.by_name[name].op == "placeholder" and _is_tensor_input(self.graph, name):
            self._expressions[name] = f"{self.names[name]}.clone()"
        return {"n": name}

    def _constant(self, node: NodeDoc) -> Iterator[str]:
        """Yield the line for a tensor that the graph holds; nothing for the body of an operator."""
        if node.target in self.graph.modules:
            return
        description = as_object(self.graph.attributes.get(node.target))
        name = self.names[node.name]
        if "data" in description:
            dtype = self._argument({"dtype": description.get("dtype")})
            yield f"{name} = torch.tensor({self._argument(description['data'])}, dtype={dtype})"
        else:
            self.constants[name] = description

    def _call(self, node: NodeDoc) -> Iterator[str]:
        target = self._target(node)
        assigned = spelling.assignment(target, node.args, self._name)
        if assigned is not None and node.name not in self.users:
            yield assigned
            return
        text = spelling.call(node.op, target, node.args, node.kwargs, self._name)
        yield from self._assigned(node, text)

    def _data(self, node: NodeDoc) -> str:
        """Return `x.data = y`, of which Dynamo makes a call of `set_` and what belongs to it."""
        given = [self._argument(item) for item in as_list(node.args)]
        if len(given) != 2 or node.kwargs or not is_identifier(given[0]):
            raise UnsupportedError("a function sets the data of a variable alone")
        changed, held = given
        self.names[node.name] = changed
        return f"{changed}.data = {held}"

    def _target(self, node: NodeDoc) -> str:
        if node.op == "call_method":
            return names.check_path(node.target)
        if node.target.startswith(numpy_calls.TAG):
            raise UnsupportedError(
                f"the graph calls {node.target:.80}, which Dynamo traced of NumPy code: in a "
                "function it would trace that on tensors, into another graph"
            )
        return public_target(node.target, self.imports)

    def _higher_order(self, node: NodeDoc) -> Iterator[str]:
        targets.decode_target(node.target)
        special = {
            "hop:while_loop": self._while_loop,
            "hop:flex_attention": self._flex_attention,
            **dict.fromkeys(kernels.TARGETS, self._kernel),
        }
        if node.target in special:
            yield from special[node.target](node)
            return
        for name in dict.fromkeys(node.inputs()):
            inner = self.graph.by_name[name]
            if inner.op == "get_attr" and inner.target in self.graph.modules:
                yield from self._definition(name, inner.target)
        yield from self._assigned(node, self._applied(node))

    def _applied(self, node: NodeDoc) -> str:
        """Return the call of a higher-order operator.

        By its public name where that takes the same.
        """
        arguments = as_list(node.args)
        if node.target == "hop:cond" and len(arguments) == 4:
            return f"torch.cond({self._arguments(node)})"
        if node.target == "hop:tag_activation_checkpoint":
            given = [*map(self._argument, arguments), "use_reentrant=False"]
            if policy := self.policies.name(self._body(arguments[0]).extra):
                given.append(f"context_fn={policy}")
            return f"checkpoint({', '.join(given)})"
        return spelling.call(node.op, node.target, node.args, node.kwargs, self._name)

    def _body(self, reference: Json) -> GraphDoc:
        """Return the body that an argument names."""
        return self.graph.modules[self.graph.by_name[str(as_object(reference).get("n"))].target]

    def _kernel(self, node: NodeDoc) -> Iterator[str]:
        """Write the call of a Triton kernel, with the grid of its first configuration."""
        given = as_object(node.kwargs)
        grid = self._argument(next(iter(_items(given.get("grid"))), {"t": [1, 1, 1]}))
        call = f"{kernels.launcher(node)}({grid}, {self._argument(given.get('kwargs'))})"
        if node.target == kernels.TARGETS[0]:
            yield call
        else:
            yield from self._assigned(node, call)

    def _while_loop(self, node: NodeDoc) -> Iterator[str]:
        """Write a call of while_loop, which gets the carried values; bodies close over others."""
        condition, body, carried, others = (*as_list(node.args), [], [])[:4]
        for reference in (condition, body):
            yield from self._closure(reference, len(_items(carried)), others)
        names = f"{self._argument(condition)}, {self._argument(body)}"
        call = f"while_loop({names}, {self._argument({'t': _items(carried)})})"
        yield from self._assigned(node, call)

    def _flex_attention(self, node: NodeDoc) -> Iterator[str]:
        """Write a call of flex_attention, whose form in Dynamo takes no buffers: bodies close over
        theirs.
        """
        arguments = as_list(node.args)
        if len(arguments) != 9:
            raise UnsupportedError("flex_attention has other arguments than those known here")
        score, block, score_buffers, mask_buffers = (arguments[i] for i in (3, 4, 7, 8))
        yield from self._closure(score, 5, score_buffers)  # score, batch, head, query, key
        yield from self._closure(_items(block)[-1], 4, mask_buffers)  # batch, head, query, key
        call = spelling.call(node.op, node.target, arguments[:7], node.kwargs, self._name)
        yield from self._assigned(node, call)

    def _closure(self, reference: Json, own: int, others: Json) -> Iterator[str]:
        """Yield the definition of a body that has `own` parameters.

        The inputs after those are variables around it.
        """
        name = str(as_object(reference).get("n"))
        target = self.graph.by_name[name].target
        inputs = [placeholder.name for placeholder in self.graph.modules[target].placeholders]
        outer = [self._argument(item) for item in _items(others)]
        yield from self._definition(name, target, dict(zip(inputs[own:], outer, strict=False)))

    def _definition(
        self, name: str, target: str, closed: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """Yield the lines of a body as a nested function."""
        writer = _Writer(
            self.graph.modules[target], self.imports, self.policies, closed, touch=self.touch
        )
        writer.is_body = True
        yield ""
        yield f"def {self.names[name]}({', '.join(writer.parameters)}):"
        yield from _indented(writer.body())
        yield ""
        self.constants.update(writer.constants)

    def _arguments(self, node: NodeDoc) -> str:
        return ", ".join(self._argument(item) for item in as_list(node.args))

    def _argument(self, tree: Json) -> str:
        return spelling.argument(tree, self._name)

    def _name(self, name: str) -> str:
        """Return the variable of a node, or of the input that has a symbol as its size."""
        if name in self._expressions:
            return self._expressions[name]
        if name in self.names:
            return self.names[name]
        for tensor in self.graph.placeholders:
            dims = as_list(as_object(tensor.value).get("size"))
            if name in dims:
                return f"{self.names[tensor.name]}.size({dims.index(name)})"
        raise UnsupportedError(f"no input of the graph has the size {name!r:.40}")


def _passed_on(graph: GraphDoc) -> set[str]:
    """Return the calls whose value is used once, by the very next call or by the output.

    Written in its place, such a call is still made at the same time.
    """
    uses = Counter(name for node in graph.nodes for name in _references(node))
    found = set()
    statements = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr")]
    for node, after in pairwise(statements):
        once = node.is_call and uses[node.name] == 1 and node.name in _references(after)
        if once and not is_effectful(node) and not after.target.startswith("hop:"):
            found.add(node.name)
    return found


def _references(node: NodeDoc) -> list[str]:
    """Return the nodes that a node uses, as often as it does."""
    return list(node.operands)


def _is_tensor_input(graph: GraphDoc, name: str) -> bool:
    value = as_object(graph.by_name[name].value)
    return value.get("k") == "tensor" and value.get("dtype") != "bool"


def _items(tree: Json) -> list[Json]:
    if isinstance(tree, Mapping) and set(tree) == {"t"}:
        return as_list(tree["t"])
    return as_list(tree)


def check_arguments(node: NodeDoc) -> None:
    """Raise `UnsupportedError` when an argument of a node has no portable form."""

    def leaf(kind: str, data: Json) -> object:
        if kind not in ("n", "sym"):
            raise UnsupportedError(f"{node.target} has an argument without a portable form")
        return None

    trees: Sequence[Json] = [*as_list(node.args), *as_object(node.kwargs).values()]
    for tree in trees:
        node_arguments.decode_value(_without_keys(tree), leaf)


def _without_keys(tree: Json) -> Json:
    """Return a tree whose dictionaries have become lists: a node can't be a key."""
    if isinstance(tree, Mapping) and set(tree) == {"d"}:
        return [[_without_keys(part) for part in as_list(pair)] for pair in as_list(tree["d"])]
    return tree


def derived_sizes(graph: GraphDoc) -> dict[str, tuple[str, int]]:
    """Return the symbolic inputs that are a size of a tensor input, with the tensor and the
    dimension.
    """
    places: dict[Json, tuple[str, int]] = {}
    for node in graph.placeholders:
        for dim, size in enumerate(as_list(as_object(node.value).get("size"))):
            if isinstance(size, str):
                places.setdefault(size, (node.name, dim))
    return {
        node.name: places[expr]
        for node in graph.placeholders
        if is_symbolic(node.value) and (expr := as_object(node.value).get("expr")) in places
    }

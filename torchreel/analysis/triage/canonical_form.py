"""The canonical form of a smallest case: what it calls and what flows where.

Two reductions of one bug end at graphs that differ in the names of nodes, in sizes, ranks and
numbers, and in how a call is spelled (`x.sum()`, `torch.sum(x)`, `aten.sum.dim_IntList`).  A form
has none of this.  Of a program it has the names that are called and read.  Not here: which forms
make two failures one bug (`grouping`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.errors import DamagedStore
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of, parse_json
from torchreel.store.documents.kinds import as_object, list_only

_CALLS = ("call_function", "call_method", "call_module")
_INPUT = "placeholder"
_MOST_NESTING = 20
_LEVELS = 100
"""Of one argument: more is no argument that torch wrote."""


@dataclass(frozen=True)
class Form:
    """The form of a case when sizes, numbers and names are gone."""

    calls: Mapping[str, int]
    """The number of calls of each operation, by its plain name (`operation`)."""
    outline: str
    """The digest of the operations and of what flows between them."""
    shape: str
    """The same with the kinds of dtypes, the constants that are no number, and the config."""
    unit: str = "call node"
    """The unit of the size of a case."""

    def within(self, others: Mapping[str, int]) -> bool:
        """Return True if all its calls are among others, each at least as often."""
        return all(others.get(name, 0) >= times for name, times in self.calls.items())


def form_of_case(data: bytes) -> Form:
    """Return the form of a stored case.  Raises DamagedStore for a document that is none."""
    try:
        document = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A stored case is not JSON: {error}.") from error
    if not isinstance(document, Mapping):
        raise DamagedStore(f"A stored case is {document!r:.60}, and no case.")
    if isinstance(document.get("text"), str):
        return _of_program(str(document["text"]))
    checkpoint = as_object(document.get("checkpoint"))
    graph = as_object(checkpoint.get("graph"))
    surroundings: Json = [
        str(document.get("backend")),
        str(document.get("harness")),
        sorted(_config_keys(checkpoint.get("config"))),
    ]
    outline, shape = _Outline(), _Shape(graph, checkpoint.get("inputs"))
    calls: Counter[str] = Counter(_names(graph))
    return Form(calls, outline.of(graph), _digest([shape.of(graph), surroundings]))


def operation(op: str, target: str) -> str:
    """Return the plain name of a node's operation: `sum` for `op:aten.sum.dim_IntList`.

    In-place forms have the same name: functionalization makes one of the other.  A namespace in
    ATen's name, `linalg_matrix_exp`, is left out: torch has `matrix_exp` as well.
    """
    kind, _, name = target.partition(":")
    parts = (name or target).split(".")
    plain = parts[1] if kind in ("op", "packet", "hop") and len(parts) > 1 else parts[-1]
    if kind == "fn" and parts[0] in ("_operator", "operator") and plain[1:] in _IN_PLACE:
        plain = plain[1:]
    return _NAMESPACE.sub("", plain).rstrip("_") or plain


_NAMESPACE = re.compile(r"^(?:linalg|special|fft)_")


_IN_PLACE = frozenset(
    {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"}
)
"""Operators of Python that have a form in place: `iadd` is `add`."""


# -- graphs ---------------------------------------------------------------------------------------


def _names(graph: Mapping[str, Json], depth: int = 0) -> Iterator[str]:
    for node in _nodes(graph):
        if node.get("op") in _CALLS:
            yield operation(str(node["op"]), str(node.get("target")))
    if depth < _MOST_NESTING:
        for inner in as_object(graph.get("modules")).values():
            yield from _names(as_object(inner), depth + 1)


class _Outline:
    """Digests of nodes from those of their operands, so that the order of nodes does not count."""

    def of(self, graph: Mapping[str, Json], depth: int = 0) -> str:
        """Return the digest of a graph: of its calls, in any order."""
        modules = as_object(graph.get("modules")) if depth < _MOST_NESTING else {}
        known = {name: self.of(as_object(inner), depth + 1) for name, inner in modules.items()}
        found: dict[str, Json] = {}
        calls: list[str] = []
        for node in _nodes(graph):
            op, name = node.get("op"), str(node.get("name"))
            if op == "output":
                continue
            if op in _CALLS:
                target = operation(str(op), str(node.get("target")))
                arguments = self.arguments(node, found)
                found[name] = _digest([target, arguments])
                calls.append(str(found[name]))
            else:
                found[name] = known.get(str(node.get("target"))) or self.source(node)
        return _digest(sorted(calls))

    def source(self, node: Mapping[str, Json]) -> Json:
        """Return the part of the digest for an input or an attribute: here always the same."""
        return "input"

    def arguments(self, node: Mapping[str, Json], found: Mapping[str, Json]) -> Json:
        """Return the part of the digest for the arguments of a call: here, its operands."""
        trees = _arguments(node)
        return [found.get(name, "?") for tree in trees for name in _operands(tree)]


class _Shape(_Outline):
    """The same, with the other differences of two calls of one operation, except for numbers."""

    def __init__(self, graph: Mapping[str, Json], inputs: Json) -> None:
        """Know the inputs of the outer graph: its nodes do not say all, as that one is all zero."""
        names = [str(node.get("name")) for node in _nodes(graph) if node.get("op") == _INPUT]
        self._inputs = dict(zip(names, list_only(inputs), strict=False))

    def source(self, node: Mapping[str, Json]) -> Json:
        """Return the kind of an input's dtype, its layout and its flags."""
        meta = as_object(node.get("meta"))
        derived = as_object(meta.get("example_value", meta.get("val")))
        value = as_object(self._inputs.get(str(node.get("name")))) or derived
        flags = value.get("flags")
        return [
            str(value.get("k")),
            dtype_kind(str(value.get("dtype"))),
            str(value.get("layout")),
            sorted(map(str, flags)) if isinstance(flags, list) else [],
        ]

    def arguments(self, node: Mapping[str, Json], found: Mapping[str, Json]) -> Json:
        """Return the operands, and the constants that are no number and no usual default.

        The constants are sorted: one program gives by position, another by name.
        """
        constants = [text for tree in _arguments(node) for text in _constants(tree)]
        return [super().arguments(node, found), sorted(constants)]


def _constants(tree: Json, depth: int = 0) -> Iterator[str]:
    if tree is True:
        yield "True"
    elif isinstance(tree, str):
        yield f"text {tree}"
    elif isinstance(tree, Sequence) and depth < _LEVELS:
        for item in tree:
            yield from _constants(item, depth + 1)
    elif isinstance(tree, Mapping) and len(tree) == 1 and depth < _LEVELS:
        ((kind, data),) = tree.items()
        if kind == "dtype":
            yield dtype_kind(str(data))
        elif kind not in _NO_CONSTANTS:
            yield from () if kind in _CONTAINERS else (kind,)
            yield from _constants(data, depth + 1)


_NO_CONSTANTS = frozenset({"n", "f", "sym", "size", "device"})
_CONTAINERS = frozenset({"t", "d", "slice", "range"})
"""Tags of arguments: of references and numbers; of what counts by its contents alone."""


def dtype_kind(dtype: str) -> str:
    """Return the kind of a dtype: `float16` and `bfloat16` are 'half', `int8` and `int64` 'int'."""
    plain = dtype.rpartition(".")[2]
    for pattern, kind in _DTYPES:
        if pattern.match(plain):
            return kind
    return plain


_DTYPES = [
    (re.compile(pattern), kind)
    for pattern, kind in [
        (r"b?float16$|half$", "half"),
        (r"float(32|64)?$|double$", "float"),
        (r"float8", "float8"),
        (r"complex|c(half|float|double)$", "complex"),
        (r"uint|byte$", "uint"),
        (r"int|short$|long$", "int"),
    ]
]


def _nodes(graph: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    for node in list_only(graph.get("nodes")):
        if isinstance(node, Mapping):
            yield node


def _arguments(node: Mapping[str, Json]) -> Iterator[Json]:
    """Yield its arguments, those by name last, in the order of their names."""
    yield node.get("args")
    kwargs = as_object(node.get("kwargs"))
    for key in sorted(kwargs):
        yield kwargs[key]


def _operands(tree: Json, depth: int = 0) -> Iterator[str]:
    """Yield the names of the nodes in an argument, in order."""
    if isinstance(tree, str) or depth > _LEVELS:
        return
    if isinstance(tree, Mapping):
        name = tree.get("n")
        if len(tree) == 1 and isinstance(name, str):
            yield name
            return
        inner: Sequence[Json] = list(tree.values())
    else:
        inner = tree if isinstance(tree, Sequence) else []
    for item in inner:
        yield from _operands(item, depth + 1)


def _config_keys(config: Json) -> Iterator[str]:
    for entry in list_only(config):
        if isinstance(entry, Mapping):
            yield f"{entry.get('module')}.{entry.get('key')}"


def _digest(value: Json) -> str:
    return digest_of(canonical_json(value))


# -- programs -------------------------------------------------------------------------------------


def _of_program(text: str) -> Form:
    """Return the form of a program: names that it gives itself are numbers, constants are gone."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DamagedStore(f"The program of a stored case can't be parsed: {error}.") from error
    own = _own_names(tree)
    read = [
        name
        for node in ast.walk(tree)
        if (name := _read_name(node)) is not None and name not in own
    ]
    calls = Counter(read)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    shape: Json = [sorted(read), [type(node).__name__ for node in statements]]
    return Form(calls, _digest(sorted(calls)), _digest(shape), "statement")


def _read_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.keyword):
        return node.arg
    return node.id if isinstance(node, ast.Name) else None


def _own_names(tree: ast.Module) -> set[str]:
    """Return names that the program binds: of functions, classes, arguments, variables,
    attributes.
    """
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
    return own

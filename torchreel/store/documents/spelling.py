"""Graph nodes, values and sizes of a store as Python text.

Lives here: the way from recorded data to text that a person reads, and that a repro is made of. Not
here: what any of it means to torch (`formats`), which is not imported, and whether a target may be
called at all (`formats.targets`). Used by `show --graph` and by the minifier's export.

Whatever the data holds, the text is made of identifiers, numbers and string literals only: a name
that is no identifier becomes a literal. So text made of a stranger's store is a harmless program
exactly if its targets are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_dotted, is_identifier, literal
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

NameOf = Callable[[str], str]
"""From the name of a node to the variable that stands for it."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX = {"neg": "-", "invert": "~", "pos": "+"}
_NUMPY = "numpy:"
_OPERATOR = re.compile(r"_?operator\.(\w+)")
_DEVICE = re.compile(r"[a-z]+(:\d+)?", re.ASCII)
_ATOM = re.compile(r"[A-Za-z_][\w.]*(\([^()]*\)|\[[^\[\]]*\])?|\d[\w.]*", re.ASCII)
_NAME_OF_CALL = re.compile(r"[A-Za-z_][\w.]*(?=[(\[])", re.ASCII)
_MAX_DEPTH = 100


def call(op: str, target: str, args: Json, kwargs: Json, name_of: NameOf) -> str:
    """Return the expression that a node computes: `torch.relu(x)`, `x + y`, `x.view(2, -1)`,
    `y[0]`.
    """
    values = [argument(item, name_of) for item in as_list(args)]
    named = [_named(key, argument(value, name_of)) for key, value in as_object(kwargs).items()]
    if op == "get_attr":
        return _attribute("self", target)
    if op == "call_method" and values:
        method = _attribute(_operand(values[0]), target)
        return f"{method}({', '.join(values[1:] + named)})"
    if op == "call_module":
        return f"{_attribute('self', target)}({', '.join(values + named)})"
    if target.startswith(_NUMPY):
        return _numpy(target, as_list(args), values, named, name_of)
    special = None if named else _special(target, as_list(args), values, name_of)
    return special or f"{function(target)}({', '.join(values + named)})"


def _special(target: str, trees: Sequence[Json], values: list[str], name_of: NameOf) -> str | None:
    """Return the operators of Python and the attributes that have a spelling of their own."""
    match = _OPERATOR.fullmatch(target.removeprefix("fn:"))
    name = match[1] if match else ""
    if name in _INFIX and len(values) == 2:
        return f"{_operand(values[0])} {_INFIX[name]} {_operand(values[1])}"
    if name in _PREFIX and len(values) == 1:
        return f"{_PREFIX[name]}{_operand(values[0])}"
    if name == "getitem" and len(values) == 2:
        return f"{_operand(values[0])}[{_index(trees[1], name_of)}]"
    if target == "fn:builtins.getattr" and len(trees) == 2:
        attribute = str(trees[1])
        return _attribute(_operand(values[0]), attribute)
    return None


def _numpy(
    target: str, trees: Sequence[Json], values: list[str], named: list[str], name_of: NameOf
) -> str:
    """Return a call that Dynamo traced of NumPy code, as NumPy code: `np.sum(x)`, `x + y`,
    `x.T`.
    """
    kind, _, name = target.removeprefix(_NUMPY).partition(":")
    if kind == "attribute" and len(trees) == 2 and not named:
        return _attribute(_operand(values[0]), str(trees[1]))
    if kind == "method" and values:
        return f"{_attribute(_operand(values[0]), name)}({', '.join(values[1:] + named)})"
    if kind == "operator":
        special = None if named else _special(f"fn:{name}", trees, values, name_of)
        return special or f"{function(f'fn:{name}')}({', '.join(values + named)})"
    text = _attribute("np", name.removeprefix("torch._numpy."))
    return f"{text}({', '.join(values + named)})"


def assignment(target: str, args: Json, name_of: NameOf) -> str | None:
    """Return `x[i] = y` for a node that only sets items; None for any other."""
    match = _OPERATOR.fullmatch(target.removeprefix("fn:"))
    items = as_list(args)
    if match is None or match[1] != "setitem" or len(items) != 3:
        return None
    where = f"{_operand(argument(items[0], name_of))}[{_index(items[1], name_of)}]"
    return f"{where} = {argument(items[2], name_of)}"


def node(data: Mapping[str, Json], graph: Mapping[str, Json]) -> str:
    """Return a node of a graph as a line: `input x: float32[4]`, `y: float32[4] =
    torch.relu(x)`.
    """
    name, op, target = (str(data.get(key)) for key in ("name", "op", "target"))
    meta = as_object(data.get("meta"))
    described = meta.get("val", meta.get("example_value"))
    shown = f": {value(described)}" if described is not None else ""
    if op == "placeholder":
        return f"input {name}{shown}"
    if op == "output":
        (returned, *_) = as_list(data.get("args")) or [None]
        return f"return {_or_dots(returned)}"
    attributes = as_object(graph.get("attributes"))
    if op == "get_attr" and target in attributes:
        shown = f": {value(attributes[target])}"
    try:
        computed = call(op, target, data.get("args"), data.get("kwargs"), str)
    except (UnsupportedError, RecursionError):
        computed = f"{target}(...)"
    return f"{name}{shown} = {computed}"


def _or_dots(tree: Json) -> str:
    try:
        return argument(tree, str)
    except (UnsupportedError, RecursionError):
        return "..."


def function(target: str) -> str:
    """Return the Python name of a node's call target."""
    kind, _, name = target.partition(":")
    if kind in ("op", "packet"):
        return _attribute("torch.ops", name)
    if kind == "hop":
        return _attribute("torch.ops.higher_order", name)
    if kind == "numpy":
        return _wrapped(name)
    text = re.sub(r"^_operator\.|^builtins\.", _shorter, name) if kind == "fn" else name or target
    return text if is_dotted(text) else literal(text)


_WRAPPERS = {
    "function": "numpy_to_tensor_wrapper", "operator": "numpy_operator_wrapper",
    "method": "numpy_method_wrapper", "attribute": "numpy_attr_wrapper",
}  # fmt: skip


def _wrapped(call: str) -> str:
    """Spell the object that Dynamo wraps around the callee of a NumPy call."""
    kind, _, name = call.partition(":")
    if kind not in _WRAPPERS:
        return literal(call)
    wrapper = f"torch._dynamo.utils.{_WRAPPERS[kind]}"
    if kind == "attribute":
        return wrapper
    return f"{wrapper}({literal(name) if kind == 'method' else function(f'fn:{name}')})"


def _shorter(match: re.Match[str]) -> str:
    return "operator." if match[0].startswith("_operator") else ""


def argument(tree: Json, name_of: NameOf, depth: int = 0) -> str:
    """Return an argument, a tagged tree, as an expression."""
    if depth > _MAX_DEPTH:
        raise UnsupportedError(f"a value nested deeper than {_MAX_DEPTH} is refused")
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return repr(tree) if not isinstance(tree, str) else literal(tree)
    if isinstance(tree, Sequence):
        return f"[{_joined(tree, name_of, depth)}]"
    if len(tree) != 1:
        return literal(str(tree))
    ((kind, data),) = tree.items()
    return _tagged(kind, data, name_of, depth)


def constant(tree: Json) -> str:
    """Return a value as an expression for a program, if the value refers to no name.

    Raises `UnsupportedError` for a value with a reference. A reference is written as it stands, and
    a store may claim that a number is a reference to anything.
    """
    return argument(tree, _no_reference)


def _no_reference(name: str) -> str:
    raise UnsupportedError(f"a constant refers to {name!r:.40}")


_PLACEMENTS = (
    "Replicate", "Shard", "_StridedShard", "Partial", "_MaskPartial", "TensorMeta",
    "ShardOrderEntry",
)  # fmt: skip
"""The classes of placements and specs: no other name is written as a call."""


def _tagged(kind: str, data: Json, name_of: NameOf, depth: int) -> str:
    match kind:
        case "n":
            return name_of(str(data))
        case "t":
            items = as_list(data)
            return f"({_joined(items, name_of, depth)}{',' if len(items) == 1 else ''})"
        case "d":
            pairs = [as_list(item) for item in as_list(data)]
            texts = (": ".join(argument(x, name_of, depth + 1) for x in pair) for pair in pairs)
            return f"{{{', '.join(texts)}}}"
        case "size":
            return f"torch.Size([{_joined(as_list(data), name_of, depth)}])"
        case "dtensor" if (parts := as_list(data)) and parts[0] in _PLACEMENTS:
            return f"{parts[0]}({_joined(parts[1:], name_of, depth)})"
        case "slice" | "range":
            return f"{kind}({_joined(as_list(data), name_of, depth)})"
    return _leaf(kind, data, name_of)


def _leaf(kind: str, data: Json, name_of: NameOf) -> str:
    match kind:
        case "f":
            return number(data)
        case "c":
            return f"complex({', '.join(number(part) for part in as_list(data))})"
        case "dtype" | "layout" | "memory_format":
            return _attribute("torch", str(data))
        case "device":
            text = str(data)
            return f'torch.device("{text}")' if _DEVICE.fullmatch(text) else literal(text)
        case "ellipsis":
            return "..."
        case "fn":
            return function(str(data))
        case "sym" if isinstance(data, Mapping):
            return expression(data.get("expr"), name_of)
    return literal(f"<{kind} {data}>")


def _joined(items: Sequence[Json], name_of: NameOf, depth: int) -> str:
    return ", ".join(argument(item, name_of, depth + 1) for item in items)


def _index(tree: Json, name_of: NameOf) -> str:
    """Return the text between the brackets of `x[...]`."""
    if isinstance(tree, Mapping) and set(tree) == {"t"}:
        items = [_index(item, name_of) for item in as_list(tree["t"])]
        return ", ".join(items) + ("," if len(items) == 1 else "") if items else "()"
    if isinstance(tree, Mapping) and set(tree) == {"slice"}:
        parts = ["" if x is None else argument(x, name_of) for x in as_list(tree["slice"])]
        return ":".join(parts[:2] + [part for part in parts[2:] if part])
    return argument(tree, name_of)


def number(data: Json) -> str:
    """Return a float as Python writes it."""
    try:
        value = float.fromhex(str(data)) if "x" in str(data) else float(str(data))
    except (ValueError, OverflowError):
        return literal(str(data))
    return repr(value) if value - value == 0 else f'float("{value}")'


def _operand(text: str) -> str:
    """Return an expression as an operand: in brackets unless it is a name, a call or a number."""
    return text if _ATOM.fullmatch(text) or _is_call(text) else f"({text})"


def _is_call(text: str) -> bool:
    """Return True if a text is a name and brackets that close at its end: `f(g(x), y)`,
    `f(x)[0]`.
    """
    name = _NAME_OF_CALL.match(text)
    if name is None or '"' in text or "'" in text:
        return False
    depth = 0
    for at, character in enumerate(text[name.end() :], name.end()):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and at + 1 < len(text) and text[at + 1] not in "([":
            return False
    return depth == 0


def _attribute(owner: str, path: str) -> str:
    return f"{owner}.{path}" if is_dotted(path) else f"getattr({owner}, {literal(path)})"


def _named(key: str, value: str) -> str:
    """Return a keyword argument."""
    return f"{key}={value}" if is_identifier(key) else f"**{{{literal(key)}: {value}}}"


# -- sizes ----------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'\s*(?:(-?\d+)(?![\w.])|(Float\("[^"]*", \d+\))|(\$-?\w+)|([A-Za-z_]\w*)|([(),]))', re.ASCII
)
_FLOAT = re.compile(r'Float\("(?P<sign>-?)0x(?P<mantissa>[0-9a-f]{1,40})p(?P<exponent>-?\d{1,4})"')
_BETWEEN = {
    "Add": " + ", "Mul": "*", "FloorDiv": "//", "CleanDiv": "//", "Mod": " % ", "PythonMod": " % ",
    "Pow": "**", "PowByNatural": "**", "Eq": " == ", "Ne": " != ", "Lt": " < ", "Le": " <= ",
    "Gt": " > ", "Ge": " >= ", "IntTrueDiv": "/", "FloatTrueDiv": "/",
    "Equality": " == ", "Unequality": " != ", "StrictLessThan": " < ", "LessThan": " <= ",
    "StrictGreaterThan": " > ", "GreaterThan": " >= ", "And": " and ", "Or": " or ",
}  # fmt: skip
_FUNCTIONS = {"Max": "max", "Min": "min", "Abs": "abs"}
_CONSTANTS = {"$true": "True", "$false": "False"}


def expression(text: Json, name_of: NameOf) -> str:
    """Return a symbolic expression in infix form: `Add(s77, Mul(2, u0))` as `s77 + 2*u0`.

    Raises `UnsupportedError` for one that is malformed or holds a function unknown here.
    """
    if isinstance(text, int):
        return repr(text)
    tokens = _tokens(str(text))
    result = _parsed(tokens, name_of, 0)
    if tokens:
        raise _malformed(text)
    return result


def _malformed(text: Json) -> UnsupportedError:
    return UnsupportedError(f"the expression {text!r:.80} has no spelling in Python")


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed(text)
        found.append(match[0].strip())
        position = match.end()
    return found


def _parsed(tokens: list[str], name_of: NameOf, depth: int) -> str:
    if not tokens or tokens[0] in "()," or depth > _MAX_DEPTH:
        raise _malformed(" ".join(tokens))
    head = tokens.pop(0)
    if head[0] == "$" or head.startswith('Float("'):
        return _constant(head)
    if not tokens or tokens[0] != "(":
        return name_of(head) if head[0].isalpha() or head[0] == "_" else head
    tokens.pop(0)
    parts: list[str] = []
    while tokens and tokens[0] != ")":
        parts.append(_parsed(tokens, name_of, depth + 1))
        if tokens and tokens[0] == ",":
            tokens.pop(0)
    if not tokens:
        raise _malformed(head)
    tokens.pop(0)
    return _applied(head, parts)


def _constant(text: str) -> str:
    match = _FLOAT.match(text)
    if match is not None:
        mantissa, exponent = int(match["mantissa"], 16), int(match["exponent"])
        try:
            return f"{match['sign']}{mantissa * 2.0**exponent!r}"
        except OverflowError:
            raise _malformed(text) from None
    if text not in _CONSTANTS:
        raise _malformed(text)
    return _CONSTANTS[text]


def _applied(head: str, parts: list[str]) -> str:
    if head in _BETWEEN and len(parts) > 1:
        return _BETWEEN[head].join(_tight(part) for part in parts)
    if head in _FUNCTIONS:
        return f"{_FUNCTIONS[head]}({', '.join(parts)})"
    if head == "Not" and len(parts) == 1:
        return f"not {_tight(parts[0])}"
    raise _malformed(head)


def _tight(part: str) -> str:
    return part if re.fullmatch(r"\w+|\w+\([^()]*\)", part, re.ASCII) else f"({part})"


# -- values ---------------------------------------------------------------------------------------


def value(description: Json) -> str:
    """Return a value description in a few words: `float32[4, 8]`, `int64[s77] cuda:0`, `s77`,
    `3`.
    """
    known = as_object(description)
    kind = known.get("k")
    if kind == "tensor":
        return _tensor(known)
    if kind in ("symint", "symfloat", "symbool"):
        return f"{str(kind)[3:]} {size(known.get('expr'))}"
    if kind in ("list", "tuple"):
        items = ", ".join(value(item) for item in as_list(known.get("items")))
        return f"[{items}]" if kind == "list" else f"({items})"
    if "v" in known:
        return argument(known["v"], str)
    return str(known.get("type") or kind or "?")


def size(text: Json) -> str:
    """Return a size for a person: infix where that is known, as it is otherwise."""
    try:
        return expression(text, str)
    except UnsupportedError:
        return str(text)


def _tensor(known: Mapping[str, Json]) -> str:
    sizes = [size(item) for item in as_list(known.get("size"))]
    notes = [str(flag) for flag in as_list(known.get("flags"))]
    if known.get("device") not in (None, "cpu"):
        notes.insert(0, str(known["device"]))
    if known.get("layout") not in (None, "strided"):
        notes.append(str(known["layout"]))
    if not is_contiguous(known):
        notes.append(
            f"strides {[size(item) for item in as_list(known.get('stride'))]}".replace("'", "")
        )
    if known.get("requires_grad"):
        notes.append("requires_grad")
    return " ".join([f"{known.get('dtype')}[{', '.join(sizes)}]", *notes])


def is_contiguous(known: Mapping[str, Json]) -> bool:
    """Return True if a tensor description has row-major strides (symbolic ones count as such)."""
    step = 1
    sizes, strides = as_list(known.get("size")), as_list(known.get("stride"))
    for length, stride in zip(reversed(sizes), reversed(strides), strict=False):
        if not isinstance(length, int) or not isinstance(stride, int):
            return True
        if stride != step and length != 1:
            return 0 in sizes
        step *= max(length, 1)
    return True

"""A case in one line, to be compared with the known minimum.

`x0: f32[2,s0]; sin(x0); cos(a) -> b (s0=4)`: inputs, calls (their values are a, b, ...), what is
returned, the sizes that symbols stand for.
Bodies of higher-order operators stand in braces where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.graph_edits import output_items
from torchreel.minifier.cases.literals import float_of
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "complex64": "c64",
}  # fmt: skip


def shown(case: Case) -> str:
    """The case in one line."""
    text = _graph(case.graph, list(case.checkpoint.inputs))
    symbols = sorted(case.checkpoint.hints, key=text.find)
    for number, symbol in enumerate(symbols):
        text = re.sub(rf"\b{symbol}\b", f"s{number}", text)
    hints = [f"s{n}={case.checkpoint.hints[symbol]}" for n, symbol in enumerate(symbols)]
    return f"{text} ({', '.join(hints)})" if hints else text


def _graph(graph: GraphDoc, inputs: list[Json] | None) -> str:
    names: dict[str, str] = {}
    parts: list[str] = []
    for number, node in enumerate(graph.placeholders):
        names[node.name] = f"x{number}"
        described = inputs[number] if inputs is not None else None
        parts.append(f"x{number}{': ' + _value(described) if described is not None else ''}")
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    for node in calls:
        if node.op == "get_attr" and node.target in graph.modules:
            names[node.name] = "{" + _graph(graph.modules[node.target], None) + "}"
        elif node.op == "get_attr":
            names[node.name] = f"constant {_value(graph.attributes[node.target])}"
        else:
            names[node.name] = _letter(len(names) - len(graph.placeholders) - _bodies(names))
            parts.append(_call(node, names))
    returned = ", ".join(_tree(item, names) for item in output_items(graph))
    return "; ".join(parts) + f" -> {returned}"


def _bodies(names: Mapping[str, str]) -> int:
    return sum(name.startswith(("{", "constant")) for name in names.values())


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 23 else f"v{number}"


def _call(node: NodeDoc, names: Mapping[str, str]) -> str:
    """'sin(x0)'; a method and an operator read like the function."""
    target = node.target.partition(":")[2] or node.target
    kind = node.target.partition(":")[0]
    short = target if kind == "op" else target.rpartition(".")[2]
    given = [_tree(item, names) for item in as_list(node.args)]
    if short == "flex_attention":
        given[4:] = ["..."]  # the block mask, the scale, options
    given += [f"{key}={_tree(value, names)}" for key, value in as_object(node.kwargs).items()]
    return f"{short}({', '.join(given)})"


def _value(description: Json) -> str:
    fields = as_object(description)
    if fields.get("k") != "tensor":
        return f"{fields.get('k')} {fields.get('expr', fields.get('v'))}"
    dtype = str(fields["dtype"])
    text = _SHORT.get(dtype, dtype) + "[" + ",".join(map(str, as_list(fields["size"]))) + "]"
    size = as_list(fields["size"])
    if fields.get("requires_grad"):
        text += " grad"
    plain, step = [], 1
    for length in reversed(size):
        plain.insert(0, step)
        step *= max(length, 1) if isinstance(length, int) else 0
    if all(isinstance(s, int) for s in size) and as_list(fields.get("stride")) != plain:
        text += f" strides {as_list(fields.get('stride'))}".replace(" ", "").replace("str", " str")
    return text


def _tree(tree: Json, names: Mapping[str, str]) -> str:
    if isinstance(tree, (list, tuple)):
        return "[" + ", ".join(_tree(item, names) for item in tree) + "]"
    if not isinstance(tree, Mapping):
        return repr(tree)
    ((kind, data),) = tree.items()
    if kind == "n":
        return names[str(data)]
    if kind in ("t", "size", "slice"):
        return {"t": "", "size": "size", "slice": "slice"}[kind] + (
            "(" + ", ".join(_tree(item, names) for item in as_list(data)) + ")"
        )
    if kind == "d":
        pairs = [[_tree(part, names) for part in as_list(pair)] for pair in as_list(data)]
        return "dict(" + ", ".join(": ".join(pair) for pair in pairs) + ")"
    number = float_of(tree)
    return str(number) if number is not None else str(data)

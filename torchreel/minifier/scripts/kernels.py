"""The Triton kernels of the program in a repro: their source, and functions that call them.

A graph calls a kernel by a number; a repro calls `launch_NUMBER_NUMBER`. The source is code of the
store, written for one that is trusted alone (`script.refuse_untrusted`), so that the rest of a
script is checked with `stubs` in its place. Called by `script` and `functions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_identifier, literal
from torchreel.formats.graphs import KERNELS
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

TARGETS = ("hop:triton_kernel_wrapper_mutation", "hop:triton_kernel_wrapper_functional")
_TABLE = "from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table"
_MOST_DEEP = 16
_PLAIN = re.compile(r"-?[\d.]+|True|False|None")


def called(graph: GraphDoc) -> Iterator[NodeDoc]:
    """Return the nodes that call a kernel, also in nested graphs."""
    return (node for each in graph.graphs() for node in each.nodes if node.target in TARGETS)


def launcher(node: NodeDoc) -> str:
    """Return the name of the function that stands for the call of a node."""
    given = as_object(node.kwargs)
    numbers = (given.get("kernel_idx"), given.get("constant_args_idx"))
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise UnsupportedError("a Triton kernel is called by two numbers")
    end = "_on_copies" if node.target == TARGETS[1] else ""
    return f"launch_{numbers[0]}_{numbers[1]}{end}"


def stubs(case: Case) -> list[str]:
    """Return the definitions that the other lines of a script are checked with."""
    lines: list[str] = []
    for name in sorted({launcher(node) for node in called(case.graph)}):
        lines += [f"def {name}(grid, arguments):", "    return arguments", "", ""]
    return lines[:-2]


def definitions(case: Case, *, by_number: bool) -> list[str]:
    """Return what takes the place of `stubs`: the kernels, and the functions that call them.

    `by_number`: the script calls the kernels by number too.
    """
    lines = ["import triton", "import triton.language as tl"]
    if by_number:
        lines.append(_TABLE)
    nodes = {launcher(node): node for node in called(case.graph)}
    rows = {
        (row.get("number"), row.get("constants_number")): row
        for row in map(as_object, as_list(case.checkpoint.extra.get(KERNELS)))
    }
    written: set[str] = set()
    for name, node in sorted(nodes.items()):
        given = as_object(node.kwargs)
        key = (given.get("kernel_idx"), given.get("constant_args_idx"))
        if key not in rows:
            raise UnsupportedError("the event log has not the source of a Triton kernel")
        lines += _kernel(rows[key], written)
        lines += ["", "", *_launcher(name, rows[key])]
        if by_number:
            lines += ["", "", *_numbered(rows[key])]
    return lines


def _kernel(row: Mapping[str, Json], written: set[str]) -> Iterator[str]:
    name = _name(row.get("name"))
    if name in written:
        return
    written.add(name)
    yield from _names(as_object(row.get("names")), written)
    yield from ("", "")
    found = [_configuration(str(text)) for text in as_list(row.get("configurations"))]
    if found:
        yield "@triton.autotune("
        yield f"    configs=[{', '.join(found)}],"
        yield f"    key={[str(one) for one in as_list(row.get('key'))]!r},"
        yield ")"
    yield "@triton.jit"
    yield from str(row.get("source")).rstrip().splitlines()


def _names(forms: Mapping[str, Json], written: set[str], deep: int = 0) -> Iterator[str]:
    """Yield the lines that give the global names of a kernel their meaning."""
    for name, form in forms.items():
        if name in written or name in ("triton", "tl") or deep > _MOST_DEEP:
            continue
        written.add(_name(name))
        match form:
            case ["module", str(module)]:
                yield f"import {_dotted(module)} as {name}"
            case ["attribute", str(module), str(attribute)]:
                yield f"from {_dotted(module)} import {_name(attribute)} as {name}"
            case ["value", value]:
                yield f"{name} = {_plain(value)}"
            case ["constexpr", value]:
                yield f"{name} = tl.constexpr({_plain(value)})"
            case ["kernel", str(source), Mapping() as names]:
                yield from _names(names, written, deep + 1)
                yield from ("", "", "@triton.jit", *source.rstrip().splitlines(), "", "")


def _configuration(text: str) -> str:
    """Return `triton.Config(...)` for what Triton printed: 'BLOCK: 128, num_warps: 4'."""
    pairs = dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)
    if not all(_PLAIN.fullmatch(value) for value in pairs.values()):
        raise UnsupportedError(f"a configuration of a Triton kernel is {text!a:.80}")
    options = ("num_warps", "num_ctas", "num_stages", "maxnreg")
    kept = [f"{name}={pairs.pop(name)}" for name in options if name in pairs]
    values = ", ".join(f"{literal(name)}: {value}" for name, value in pairs.items())
    return f"triton.Config({', '.join([f'{{{values}}}', *kept])})"


def _launcher(name: str, row: Mapping[str, Json]) -> list[str]:
    constants = [f"{_name(k)}={_value(v)}" for k, v in as_object(row.get("constants")).items()]
    call = f"{_name(row.get('name'))}[grid]({', '.join(['**arguments', *constants])})"
    if not name.endswith("_on_copies"):
        return [f"def {name}(grid, arguments):", f"    {call}"]
    return [
        f"def {name}(grid, arguments):",
        "    copied = {k: v.clone() for k, v in arguments.items() if isinstance(v, torch.Tensor)}",
        "    arguments = {**arguments, **copied}",
        f"    {call}",
        "    return arguments",
    ]


def _numbered(row: Mapping[str, Json]) -> list[str]:
    name, number = _name(row.get("name")), row.get("number")
    constants = as_object(row.get("constants")).items()
    values = ", ".join(f"{literal(k)}: {_value(v)}" for k, v in constants)
    return [
        f"kernel_side_table.id_to_kernel[{number}] = {name}",
        f"kernel_side_table.kernel_to_id[{name}] = {number}",
        f"kernel_side_table.constant_args[{row.get('constants_number')}] = {{{values}}}",
    ]


def _value(form: Json) -> str:
    match form:
        case ["attribute", "triton.language", str(name)]:
            return f"tl.{_name(name)}"
        case ["constexpr", value]:
            return f"tl.constexpr({_plain(value)})"
    return _plain(form)


def _plain(value: Json) -> str:
    if isinstance(value, str):
        return literal(value)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value) if value == value and abs(value or 0) != inf else f'float("{value}")'
    raise UnsupportedError(f"an argument of a Triton kernel is {value!a:.60}")


def _name(text: Json) -> str:
    if not isinstance(text, str) or not is_identifier(text):
        raise UnsupportedError(f"a Triton kernel has the name {text!a:.60}")
    return text


def _dotted(text: str) -> str:
    return ".".join(_name(part) for part in text.split("."))

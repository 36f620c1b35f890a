"""The definition of a foreign operator in a repro, where the module that has it is not imported.

Lives here: from what the recording says of an operator to a few lines of `torch.library`. Not here:
the stand-ins that reductions run with (`formats.operators`). Called by `script`.

What is written has the operator's schema and tags, and returns zeros of the recorded sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_identifier, literal
from torchreel.formats.graphs import OPERATORS
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.operators.answers import OperatorCall, Tensor
from torchreel.minifier.cases.case import Case
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


def defined(case: Case) -> dict[str, Mapping[str, Json]]:
    """Return the operators that the script of a case has to define, by name with overload.

    Empty if the user named modules: they define them.
    """
    table = as_object(case.checkpoint.extra.get(OPERATORS))
    if case.imports:
        return {}
    called = set(_targets(case.graph))
    return {
        name: as_object(data)
        for name, data in table.items()
        if called & {f"op:{name}", f"packet:{name.rpartition('.')[0]}"}
    }


def sources(case: Case) -> tuple[str, ...]:
    """Return the modules that define foreign operators, or else the operators of `defined`."""
    return case.imports or tuple(defined(case))


def _targets(graph: GraphDoc) -> Iterator[str]:
    return (node.target for each in graph.graphs() for node in each.nodes)


def definitions(case: Case) -> list[list[str]]:
    """Return the lines that define the operators of a case, a part of the script for each.

    Raises `UnsupportedError` for one whose definition is more than sizes.
    """
    return [_definition(name, data, case) for name, data in defined(case).items()]


def _definition(name: str, data: Mapping[str, Json], case: Case) -> list[str]:
    if name.count(".") != 2:
        raise UnsupportedError(f"the name of the operator {name!r:.80} is none")
    namespace, operator, overload = name.split(".")
    full = f"{namespace}::{operator}"
    if overload != "default" or data.get("decomposes") or data.get("effect"):
        raise UnsupportedError(_needs_module(name, "is more than a schema and sizes"))
    if data.get("autograd") and _trains(case):
        raise UnsupportedError(_needs_module(name, "has a backward of its own"))
    schema = str(data.get("schema"))
    try:
        parsed = torch._C.parse_schema(schema)
    except RuntimeError as error:
        raise UnsupportedError(f"the schema of the operator {name!r:.80} is none") from error
    parameters = [argument.name for argument in parsed.arguments]
    if not all(map(is_identifier, [operator, *parameters])) or (
        parsed.name != full or parsed.overload_name
    ):
        raise UnsupportedError(f"the schema of the operator {name!r:.80} is none")
    real, fake = _results(name, data, parameters, bool(parsed.returns), _ranks(name, case))
    head = f"def {operator}_{{kind}}({_signature(parameters, data)}):"
    shared = real == fake
    lines = [head.format(kind="kernel"), f"    return {real}", "", ""]
    if not shared:
        lines += [head.format(kind="fake"), f"    return {fake}", "", ""]
    name_of_fake = f"{operator}_kernel" if shared else f"{operator}_fake"
    write = _in_python if data.get("python") is True else _in_library
    return [
        *lines,
        *write(full, parsed, schema.removeprefix(full), _tags(data)),
        f"torch.library.register_fake({literal(full)}, {name_of_fake})",
    ]


def _in_python(
    full: str, parsed: torch.FunctionSchema, signature: str, tags: Sequence[str]
) -> list[str]:
    """Return the definition of an operator of `torch.library.custom_op`.

    Torch makes kernels of its own for such an operator: its backward raises if there is none.
    """
    operator = full.partition("::")[2]
    written = [argument.name for argument in parsed.arguments if argument.is_write]
    given = [tag for tag in tags if tag != "torch.Tag.pt2_compliant_tag"]  # torch adds it
    rest = f", tags=[{', '.join(given)}]" if given else ""
    return [
        f"{operator}_definition = torch.library.custom_op(",
        f"    {literal(full)}, {operator}_kernel, mutates_args={written!r},".replace("'", '"'),
        f"    schema={literal(signature)}{rest},",
        ")",
    ]


def _in_library(
    full: str, parsed: torch.FunctionSchema, signature: str, tags: Sequence[str]
) -> list[str]:
    """Return the definition of an operator by its schema alone."""
    operator = full.partition("::")[2]
    given = f", tags=[{', '.join(tags)}]" if tags else ""
    return [
        f"torch.library.define({literal(full)}, {literal(signature)}{given})",
        f'torch.library.impl({literal(full)}, "default", {operator}_kernel)',
    ]


def _tags(data: Mapping[str, Json]) -> list[str]:
    return [f"torch.Tag.{tag}" for tag in as_list(data.get("tags")) if _is_tag(tag)]


def _signature(parameters: list[str], data: Mapping[str, Json]) -> str:
    """Return the parameters of the function that defines an operator.

    Those that every recorded call gave are named; the dispatcher leaves out arguments equal to
    their defaults.
    """
    calls = [as_object(call) for call in as_list(data.get("calls"))]
    given = min((len(as_list(call.get("args"))) for call in calls), default=0)
    rest = ["*others"] if given < len(parameters) else []
    return ", ".join([*parameters[:given], *rest, *(["**named"] if rest else [])])


def _needs_module(name: str, why: str) -> str:
    return (
        f"the operator {name!r:.80} {why}, so a script can't define it: "
        "name the module that does with --import MODULE"
    )


def _is_tag(tag: Json) -> bool:
    return isinstance(getattr(torch.Tag, str(tag), None), torch.Tag)


def _trains(case: Case) -> bool:
    return any(as_object(value).get("requires_grad") for value in case.checkpoint.inputs)


def _ranks(name: str, case: Case) -> list[int | None]:
    """Return the rank of each tensor argument of an operator's call in the case; None if unknown.

    A reduction may have removed some of the recorded call's sizes.
    """
    targets = {f"op:{name}", f"packet:{name.rpartition('.')[0]}"}
    known = {
        node.name: as_object(value).get("size")
        for node, value in zip(case.graph.placeholders, case.checkpoint.inputs, strict=False)
    }
    call = next((node for node in case.graph.nodes if node.target in targets), None)
    args = as_list(call.args) if call is not None else []
    flat = [one for arg in args for one in (arg if isinstance(arg, list) else [arg])]
    sizes = [known.get(str(as_object(arg).get("n"))) for arg in flat]
    return [len(size) if isinstance(size, list) else None for size in sizes]


def _results(
    name: str,
    data: Mapping[str, Json],
    parameters: list[str],
    returns: bool,
    ranks: list[int | None],
) -> tuple[str, str]:
    """Return the results for real tensors, and for fake ones."""
    if not returns:
        return "None", "None"
    calls = as_list(data.get("calls"))
    if not calls:
        raise UnsupportedError(_needs_module(name, "has no recorded call"))
    writer = _Writer(name, OperatorCall.of(calls[0]), _flat_names(calls[0], parameters), ranks)
    return writer.text(writer.call.result, "1"), writer.text(writer.call.result, _NEW_SIZE)


_NEW_SIZE = "torch.library.get_ctx().new_dynamic_size()"


def _flat_names(call: Json, parameters: list[str]) -> list[str]:
    """Return an expression for each argument of a call, in a row as `Call.given` has them."""
    found: list[str] = []
    args = as_list(as_object(call).get("args"))
    kwargs = as_object(as_object(call).get("kwargs"))
    named = [(f"named[{literal(key)}]", kwargs[key]) for key in sorted(kwargs)]
    for parameter, item in [*zip(parameters, args, strict=False), *named]:
        inner = as_object(item).get("list", as_object(as_object(item).get("value")).get("items"))
        if isinstance(inner, list):
            found += [f"{parameter}[{number}]" for number in range(len(inner))]
        else:
            found.append(parameter)
    return found


class _Writer:
    """Writes the results of a recorded call as expressions over its arguments."""

    def __init__(
        self, name: str, call: OperatorCall, names: list[str], ranks: list[int | None]
    ) -> None:
        self.name, self.call = name, call
        self.tensors: list[tuple[str, Tensor]] = []
        self.alike: list[tuple[str, Tensor]] = []  # those that still have as many sizes
        known = itertools.chain(ranks, itertools.repeat(None))
        for expression, given, rank in zip(names, call.given, known, strict=False):
            tensor = Tensor.of(as_object(given).get("value"))
            if tensor is None:
                continue
            self.tensors.append((expression, tensor))
            if rank is None or rank == len(tensor.size):
                self.alike.append((expression, tensor))

    def text(self, result: Json, new_size: str) -> str:
        """Return a result as an expression."""
        data = as_object(result)
        tensor = Tensor.of(result)
        if tensor is not None:
            return self._tensor(tensor, new_size)
        if data.get("k") in ("list", "tuple"):
            items = [self.text(item, new_size) for item in as_list(data.get("items"))]
            ends = "[]" if data["k"] == "list" else "()"
            comma = "," if len(items) == 1 and ends == "()" else ""
            return f"{ends[0]}{', '.join(items)}{comma}{ends[1]}"
        if data.get("k") == "symint":
            return self._size(data.get("expr"), 0, new_size)
        raise UnsupportedError(_needs_module(self.name, "returns what is no tensor"))

    def _tensor(self, tensor: Tensor, new_size: str) -> str:
        for expression, given in self.tensors:
            if tensor.object is not None and tensor.object == given.object:
                return expression
            if tensor.storage is not None and tensor.storage == given.storage:
                return self._view(expression, given, tensor)
        for expression, given in self.alike:
            if (given.size, given.stride, given.dtype) == (
                tensor.size,
                tensor.stride,
                tensor.dtype,
            ):
                return f"torch.zeros_like({expression})"
        if list(tensor.stride) != sorted(tensor.stride, key=_largest_first):
            raise UnsupportedError(_needs_module(self.name, "returns a transposed tensor"))
        sizes = [self._size(size, dim, new_size) for dim, size in enumerate(tensor.size)]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        if not tensor.dtype.isidentifier():
            raise UnsupportedError(f"torch has no dtype {tensor.dtype!r:.40}")
        return f"torch.zeros({shape}, dtype=torch.{tensor.dtype})"

    def _view(self, expression: str, given: Tensor, tensor: Tensor) -> str:
        numbers = [*tensor.size, *tensor.stride, tensor.offset]
        if tensor.dtype != given.dtype or not all(isinstance(number, int) for number in numbers):
            raise UnsupportedError(_needs_module(self.name, "returns a view with computed sizes"))
        sizes, strides = list(tensor.size), list(tensor.stride)
        return f"torch.as_strided({expression}, {sizes}, {strides}, {tensor.offset})"

    def _size(self, size: Json, dim: int, new_size: str) -> str:
        for expression, given in self.alike:
            if given.size[dim : dim + 1] == (size,):
                return f"{expression}.shape[{dim}]"
        if isinstance(size, int):
            return str(size)
        for expression, given in self.alike:
            if size in given.size:
                return f"{expression}.shape[{given.size.index(size)}]"
        if isinstance(size, str) and size.startswith("u") and size[1:].isdigit():
            return new_size
        raise UnsupportedError(_needs_module(self.name, f"computes a size ({size!s:.40})"))


def _largest_first(stride: Json) -> tuple[int, int]:
    return (0, 0) if isinstance(stride, str) else (1, -stride if isinstance(stride, int) else 0)

"""Pieces as data: the checkpoint of a graph that a backend compiles apart, and what it says.

Lives here: its two checkpoints, and the sizes for which a piece is compiled.  Not here: which call
is a piece (`torchreel.recorder.probes.pieces`), how it is called again
(`torchreel.replay.child.pieces`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch.fx import GraphModule

from torchreel.errors import UnsupportedError
from torchreel.formats import symbols
from torchreel.formats.checkpoints import aot_arguments
from torchreel.formats.checkpoints.document import CheckpointDoc, graph_checkpoint
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.shape_env import snapshots
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat import fx, shapes
from torchreel.torch_compat.dynamo import contexts
from torchreel.torch_compat.tensors import fake_tensors

KEY = "piece"
"""Key in the `extra` of a checkpoint: the call that compiled the piece."""
OWN = "own"
"""Key in that: parts that are code of the program, and can't be replayed from data."""
TRACED = "traced_with"
"""Key in that: the ShapeEnv of the values of the graph, if its inputs have another."""
REAL, BEFORE, REGION = "real_inputs", "converted_before", "subgraph_name"
COMPILE_FX = "compile_fx"
AOT = "aot_autograd"

_VALUES = ("example_value", "val")


def inductor_checkpoint(
    gm: GraphModule, inputs: Sequence[object], arguments: Mapping[str, Any]
) -> CheckpointDoc:
    """Take the `graph` checkpoint of a piece as it enters Inductor, with these arguments.

    With `ignore_shape_env` the inputs have sizes of their own, in a ShapeEnv of their own; the
    descriptions of values in the graph refer to the ShapeEnv that it was traced with.
    """
    own: list[Json] = []
    if not aot_arguments.is_of_torch(arguments.get("inner_compile")):
        own.append("inner_compile")
    find = arguments.get("get_decomp_fn")
    table = getattr(find, "table", None)
    settings: dict[str, Json] = {
        "call": COMPILE_FX,
        "ignore_shape_env": bool(arguments.get("ignore_shape_env")),
        **aot_arguments.encode(table, own),
    }
    return _checkpoint(gm, inputs, settings, own)


def aot_checkpoint(
    gm: GraphModule, inputs: Sequence[object], arguments: Mapping[str, Any]
) -> CheckpointDoc:
    """Take the `graph` checkpoint of a piece as it enters AOTAutograd, with these arguments.

    What AOTAutograd's own compilers do is no part of it.
    """
    own: list[Json] = []
    flags = ("ignore_shape_env", "keep_inference_input_mutations", "disable_functionalization")
    settings: dict[str, Json] = {
        "call": AOT,
        **{flag: True for flag in flags if arguments.get(flag)},
        **aot_arguments.encode_partition(arguments.get("partition_fn"), own),
        **aot_arguments.encode(arguments.get("decompositions"), own),
    }
    return _checkpoint(gm, inputs, settings, own)


def _checkpoint(
    gm: GraphModule, inputs: Sequence[object], settings: Mapping[str, Json], own: list[Json]
) -> CheckpointDoc:
    apart = bool(settings.get("ignore_shape_env"))
    parameters = getattr(gm, "_param_name_to_source", None)
    doc = graph_checkpoint(gm, inputs, None, parameters, _fakes(gm, inputs, apart=apart))
    # What reduces it needs a backend that does the like of AOTAutograd alone.
    backend = "inductor" if settings["call"] == COMPILE_FX else "aot_eager"
    said = {
        **settings, "from_dynamo": parameters is not None, **({OWN: own} if own else {}),
        **_traced_with(gm, inputs), **_real(inputs, apart=apart),
    }  # fmt: skip
    return replace(doc, extra={**doc.extra, "backend": backend, KEY: said})


def _traced_with(gm: GraphModule, inputs: Sequence[object]) -> dict[str, Json]:
    """Return the ShapeEnv that the graph was traced with, and the sizes, where its inputs have
    another.
    """
    with fake_tensors.no_dispatch():
        mode, traced = fake_tensors.fake_mode_of(None, inputs), fx.traced_env(gm)
        if traced is None or (mode is not None and traced is mode.shape_env):
            return {}
        sizes: dict[str, Json] = {
            str(symbol): size for symbol, size in sizes_of(gm, inputs) if isinstance(size, int)
        }
        return {TRACED: snapshots.encode_shape_env(traced), "sizes": sizes}


def _real(inputs: Sequence[object], *, apart: bool) -> dict[str, Json]:
    """Return settings: which inputs are real tensors to make symbols of, and the region's name."""
    found: list[Json] = [
        i
        for i, given in enumerate(inputs)
        if isinstance(given, torch.Tensor)
        and not fake_tensors.is_fake(given)
        and not fake_tensors.is_traced_input(given)
    ]
    mode = fake_tensors.fake_mode_of(None, inputs)
    name = contexts.subgraph_name()
    said: dict[str, Json] = {REGION: name} if name else {}
    if found and not apart and mode is not None and mode.shape_env is not None:
        said |= {REAL: found, BEFORE: fake_tensors.converted_tensors(mode)}
    return said


def with_numbers(doc: CheckpointDoc) -> CheckpointDoc:
    """Return a checkpoint with the values in the graph described by the sizes of its inputs.

    It is another checkpoint if the graph was traced with symbols, and the inputs have numbers.
    """
    settings = doc.extra.get(KEY)
    traced = as_object(settings).get(TRACED)
    if not isinstance(traced, Mapping) or not isinstance(settings, Mapping):
        return doc
    table, sizes = snapshots.decode_symbols(traced), settings.get("sizes")
    known = as_object(sizes)
    numbers = {
        symbol: size
        for name, symbol in table.items()
        if isinstance(size := known.get(name), int)
    }  # fmt: skip
    kept = {key: value for key, value in settings.items() if key not in (TRACED, "sizes")}
    graph = _sized(doc.graph, table, numbers)
    return replace(doc, graph=graph, extra={**doc.extra, KEY: kept})


def _fakes(gm: GraphModule, inputs: Sequence[object], *, apart: bool) -> list[object]:
    """Return the fake value that each input stands for, which AOTAutograd will find for it."""
    holders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return [
        given
        if fake_tensors.is_fake(given)
        else node.meta.get("example_value")
        if not apart and fake_tensors.is_traced_input(given)
        else None
        for node, given in zip(holders, inputs, strict=True)
    ]


def sizes_of(
    gm: GraphModule, inputs: Sequence[object]
) -> Iterator[tuple[sympy.Symbol, int | tuple[int | None, int | None]]]:
    """Yield each symbol of the graph's inputs with the size, or the range, that it is given."""
    holders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    seen: set[sympy.Symbol] = set()
    for node, given in zip(holders, inputs, strict=False):
        expected = node.meta.get("example_value", node.meta.get("val"))
        for size, found in _sizes(expected, given):
            symbol = _symbol(size)
            if symbol is None or symbol in seen:
                continue
            seen.add(symbol)
            yield symbol, found if isinstance(found, int) else _range(found)


def _sizes(expected: object, given: object) -> Iterator[tuple[object, int | torch.SymInt]]:
    """Yield pairs of sizes: as the graph has them, and as they are given."""
    if isinstance(expected, torch.Tensor) and isinstance(given, torch.Tensor):
        yield from zip(expected.shape, given.shape, strict=False)
    elif isinstance(given, (int, torch.SymInt)) and not isinstance(given, bool):
        yield expected if expected is not None else given, given


def _symbol(size: object) -> sympy.Symbol | None:
    if not isinstance(size, torch.SymInt):
        return None
    expr = shapes.unreplaced(size.node)
    return expr if isinstance(expr, sympy.Symbol) else None


def _range(size: torch.SymInt) -> int | tuple[int | None, int | None]:
    """Return the least and the most, None where it has no limit; or the number that it has
    become.
    """
    expr = shapes.expression(size.node)
    return int(expr) if expr.is_number else shapes.range_of(size.node)


def _sized(
    doc: GraphDoc, table: Mapping[str, sympy.Symbol], sizes: Mapping[sympy.Symbol, int]
) -> GraphDoc:
    """Return a graph document whose values have numbers for symbols; a value with others is left
    out.
    """

    numbers = {symbol: sympy.Integer(size) for symbol, size in sizes.items()}

    def number(text: Json) -> Json:
        if not isinstance(text, str):
            return text
        found = symbols.decode_expr(text, table).xreplace(numbers)
        if found.free_symbols:
            raise UnsupportedError(f"no size is known for {found}")
        return symbols.encode_expr(found)

    def meta(old: Mapping[str, Json]) -> dict[str, Json]:
        kept = {k: v for k, v in old.items() if k not in _VALUES}
        for key in _VALUES:
            if key in old:
                try:
                    kept[key] = _described(old[key], number)
                except UnsupportedError:
                    continue
        return kept

    return doc.with_each_node(lambda node: replace(node, meta=meta(node.meta)))


def _described(value: Json, number: Callable[[Json], Json]) -> Json:
    """Return a description of a value with the expressions in it changed."""
    if not isinstance(value, Mapping):
        return value
    if value.get("k") == "symint":
        found = number(value.get("expr"))
        return {"k": "int", "v": found} if isinstance(found, int) else {**value, "expr": found}
    changed = {k: v for k, v in value.items() if k != "unreplaced"}
    for key in ("size", "stride", "items"):
        if isinstance(items := value.get(key), list):
            each = functools.partial(_described, number=number) if key == "items" else number
            changed[key] = [each(item) for item in items]
    for key in ("offset", "storage_size"):
        if key in value:
            changed[key] = number(value[key])
    if "item" in value:
        changed["item"] = _described(value["item"], number)
    return changed


def own_code(settings: Mapping[str, Json]) -> list[str]:
    """Return the names of the program's own code that a piece is compiled with."""
    return [str(name) for name in list_only(settings.get(OWN))]

"""From a checkpoint to live objects, and into the stage's own entry point.

Lives here: rebuilding the ShapeEnv, the fake inputs and the graph, imposing config, ambient state
and counters, calling `compile_fx` or `compile_fx_inner`.  Not here: processes and stores
(`child`), comparison (`compare`).  Called by the replay's child and the minifier's worker.

Nothing is re-traced on the way: the recorded graph is what the stage gets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import sympy
import torch
from torch.fx import GraphModule

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats import names, node_arguments, placements, sources, symbols
from torchreel.formats.checkpoints import ambient, config, exported_programs
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.checkpoints.inductor_call import decode_arguments, decode_graph_name
from torchreel.formats.graphs import KERNELS, OPERATORS
from torchreel.formats.graphs.codec import decode_graph
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.graphs.operators import operators_of
from torchreel.formats.operators import stand_ins
from torchreel.formats.shape_env import answers, calls, snapshots
from torchreel.formats.tensors.fakes import Decoder
from torchreel.formats.tensors.fields import INFERENCE
from torchreel.formats.tensors.synthetic import synthesise_all
from torchreel.replay.accuracy.comparison import tensors_of
from torchreel.replay.child import objects, pieces, triton_kernels
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.reading.typed import convert
from torchreel.torch_compat import configs, distributed, fx, shapes
from torchreel.torch_compat.autograd import aot
from torchreel.torch_compat.counters import (
    set_aot_counter,
    set_checkpoint_counter,
    set_graph_counter,
    set_region_call_counter,
)
from torchreel.torch_compat.dynamo import backends, contexts
from torchreel.torch_compat.dynamo.automatic_dynamic import set_specialized_floats
from torchreel.torch_compat.export.exports import decompose
from torchreel.torch_compat.fx import last_sequence
from torchreel.torch_compat.inductor import added_entries, code_generation
from torchreel.torch_compat.operators import dispatcher
from torchreel.torch_compat.shapes import ShapeEnv
from torchreel.torch_compat.tensors import fake_tensors
from torchreel.torch_compat.tensors.fake_tensors import FakeTensorMode

_COUNTERS = {
    "aot_counter": set_aot_counter,
    "graph_counter": set_graph_counter,
    "checkpoint_counter": set_checkpoint_counter,
    "region_call_counter": set_region_call_counter,
}
"""Of the process, in what a compile makes: its graphs and regions are numbered by them."""
_MOST_CONVERTED = 100_000
"""A fake mode of a real program has converted fewer tensors; a store may claim any number."""


@dataclass
class Restored:
    """A checkpoint brought back to life."""

    doc: CheckpointDoc
    graph: GraphModule
    inputs: list[object]
    mode: FakeTensorMode
    env: ShapeEnv
    lost: list[str]
    symbols: Mapping[str, object]
    request: exported_programs.DecompositionRequest | None = None
    """The request to decompose, where an exported program is replayed."""

    def expression(self, spelled: Json) -> object:
        """Return a recorded expression over the checkpoint's symbols."""
        return calls.decode("expr", spelled, dict(self.symbols))


def with_static_inputs(doc: CheckpointDoc, static: Sequence[bool]) -> CheckpointDoc:
    """Spell the sizes of some tensors among the inputs as numbers, where they are numbers by now.

    `static` says it of each tensor; where there are not as many, nothing is known.
    """
    tensors = [item for item in doc.inputs if isinstance(item, Mapping) and "size" in item]
    if len(tensors) != len(static) or not any(static):
        return doc
    flags = iter(static)
    inputs = []
    for item in doc.inputs:
        if isinstance(item, Mapping) and "size" in item and next(flags):
            numbers = all(isinstance(size, int) for size in item["size"])  # type: ignore[union-attr]
            item = {k: v for k, v in item.items() if k != "unreplaced" or not numbers}
        inputs.append(item)
    return replace(doc, inputs=tuple(inputs))


def _with_plain_fakes(doc: CheckpointDoc) -> CheckpointDoc:
    """Take from inputs of a Dynamo graph that they are inference tensors; their fakes are none.

    Recordings of 0.2.0 and before have that flag of the real tensors.
    """
    inference = isinstance(doc.ambient, Mapping) and doc.ambient.get("inference_mode")
    if doc.entry != "graph" or inference:
        return doc
    return replace(doc, inputs=tuple(map(_plain, doc.inputs)))


def _plain(description: Json) -> Json:
    """Return the description of an input without the flag of inference tensors."""
    flags = as_object(description).get("flags")
    if not isinstance(description, Mapping) or not isinstance(flags, list):
        return description
    return {**description, "flags": [flag for flag in flags if flag != INFERENCE]}


_REMEDY = (
    " (a function of the program's own, put into the graph as torch.compiler.allow_in_graph lets "
    "one do, is code: add --trust, or --entry frame --trust, if you trust who made the store)"
)


def restore(doc: CheckpointDoc, *, trust: bool = False) -> Restored:
    """Rebuild a checkpoint's ShapeEnv, fake inputs and graph.

    `trust`: also the decompositions of the program's own. Raises `UnsupportedError` (or
    `UntrustedError`) naming what cannot, or may not, be rebuilt.
    """
    objects.load_own(doc, trust=trust)
    missing = doc.opaque()
    if missing:
        raise UnsupportedError(
            f"the checkpoint holds what has no portable form: {'; '.join(missing)}"
            f"{_REMEDY if any(name.lstrip().startswith('target ') for name in missing) else ''}"
        )
    doc = _with_plain_fakes(doc)
    # The program's own code is in no comment that the compiler writes.
    names.check_comment({k: v for k, v in doc.extra.items() if k not in _CODE})
    dispatcher.register_operators()
    _impose_world(doc.extra.get("world"))
    stand_in_for(doc)
    table = snapshots.decode_symbols(doc.shape_env)
    env = snapshots.new_shape_env(doc.shape_env)
    snapshots.restore(env, doc.shape_env, table)
    mode = fake_tensors.fake_mode(env, _settings(doc))
    if doc.entry == "graph" and not pieces.compiles_apart(doc):
        _warm_fake_cache(doc, Decoder(mode, table, doc.hints), trust=trust)
        snapshots.restore(env, doc.shape_env, table)
    decoder = Decoder(mode, table, doc.hints)
    inputs = [decoder.fake(description) for description in doc.inputs]
    lost: list[str] = []
    if doc.entry == "graph":  # there, storages of inputs and of values are numbered apart
        decoder = _decoder_of_graph(doc, mode, table)
    graph = decode_graph(doc.graph, decoder, lost, inputs=doc.inputs)
    _define_kernels(doc, graph, trust=trust)
    if doc.entry == "graph" and pieces.is_from_dynamo(doc):
        parameters = sources.decode_named(doc.extra.get("parameter_sources"))
        contexts.mark_as_dynamo_graph(graph, parameters)
    fx.set_class_names(graph, as_object(doc.extra.get("class_names")))
    request = _request(doc, graph, table, trust=trust) if doc.entry == "export" else None
    snapshots.restore(env, doc.shape_env, table)  # making fakes may have noted guards
    if "last_sequence" in doc.extra:
        _renumber(graph, doc.extra["last_sequence"])
    if isinstance(count := doc.extra.get("converted_tensors"), int):
        fake_tensors.count_as_converted(mode, min(count, _MOST_CONVERTED))
    if isinstance(number := doc.extra.get("first_row_length"), int):
        fake_tensors.set_first_row_length(mode, number)
    shapes.forget_answers()
    answers.restore(env, doc.extra.get("shape_answers"), table)
    return Restored(doc, graph, inputs, mode, env, lost, table, request)


def _impose_world(world: Json) -> None:
    """Make the process groups of the recorded process, which send nothing here."""
    if world is None:
        return
    try:
        rank, size, groups = convert(world, tuple[int, int, list[tuple[str, list[int]]]])
        if not 0 <= rank < size <= distributed.MOST_RANKS or len(groups) > distributed.MOST_GROUPS:
            raise ValueError(f"rank {rank} of {size}, in {len(groups)} groups")
        for name, _ in groups:
            placements.check_name(name)
        distributed.impose_world(rank, size, groups)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"no process groups are like the recorded ones: {error!s:.200}"
        ) from error


def _request(
    doc: CheckpointDoc, graph: GraphModule, table: symbols.Symbols, *, trust: bool
) -> exported_programs.DecompositionRequest:
    found = doc.extra.get(exported_programs.KEY)
    return exported_programs.decode(
        as_object(found),
        graph, table, doc.hints, objects.kept(doc, trust=trust),
    )  # fmt: skip


def _decoder_of_graph(
    doc: CheckpointDoc, mode: FakeTensorMode, table: Mapping[str, sympy.Symbol]
) -> Decoder:
    """Return the decoder for the values in a graph.

    They belong to the ShapeEnv of the inputs, or to one of their own (`pieces.traced_with`).
    """
    traced = pieces.traced_with(doc)
    if traced is None:
        return Decoder(mode, table, doc.hints)
    table = snapshots.decode_symbols(traced)
    env = snapshots.new_shape_env(traced)
    snapshots.restore(env, traced, table)
    return Decoder(fake_tensors.fake_mode(env, _settings(doc)), table, snapshots.hints(traced))


def stand_in_for(doc: CheckpointDoc) -> tuple[str, ...]:
    """Register stand-ins for the operators that this process lacks; return their names."""
    table = doc.extra.get(OPERATORS) or operators_of([doc.graph])
    return stand_ins.register(table)


_CODE = (objects.KEY, KERNELS)
"""Keys of code, which is run of a store that is trusted alone."""
_KERNEL_CALL = "hop:triton_kernel_wrapper_"


def _define_kernels(doc: CheckpointDoc, graph: GraphModule, *, trust: bool) -> None:
    """Make the Triton kernels that a graph calls, by numbers that are valid in one process only."""
    # Of the document: FX leaves out the bodies that no node names, and others may not.
    calls = [*dict.fromkeys((*fx.kernel_calls(graph), *_kernel_calls(doc.graph)))]
    if not calls:
        return
    what = f"the graph calls Triton kernels of the program's own ({', '.join(calls)})"
    if not trust:
        raise UnsupportedError(
            f"{what}: they are code, which a replay from data does not run. If you trust who made "
            "the store, add --trust, which makes them from their source (hop.kernel)"
        )
    if len(triton_kernels.define(doc.extra.get(KERNELS))) == 0:
        raise UnsupportedError(
            f"{what}, and the event log has not their source: replay the frame where their module "
            "can be imported (--entry frame --trust)"
        )


def _kernel_calls(graph: GraphDoc) -> Iterator[str]:
    nodes = (node for each in graph.graphs() for node in each.nodes)
    return (node.name for node in nodes if node.target.startswith(_KERNEL_CALL))


def _renumber(graph: GraphModule, last: Json) -> None:
    """Number an ATen graph's nodes as autograd counts here.

    What Inductor traces in addition gets the number of the last one, as it did when recorded:
    `last` says which of the recorded numbers that was, if any.
    """
    now = last_sequence()
    for module in graph.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            number = node.meta.get("seq_nr")
            if isinstance(number, int):
                node.meta["seq_nr"] = now if number == last else now - 1 - number


def _warm_fake_cache(doc: CheckpointDoc, decoder: Decoder, *, trust: bool) -> None:
    """Run every node once on its fake arguments, as Dynamo did while it traced.

    AOTAutograd's tracing takes results of symbolic operators from a cache that the ShapeEnv holds
    and that Dynamo's tracing filled.  A hit traces no symbolic arithmetic, a miss does: without
    this the same graph comes out, with other node names.  The objects used here are thrown away.
    """
    graph = decode_graph(doc.graph, decoder, [], inputs=doc.inputs)
    _define_kernels(doc, graph, trust=trust)
    with ambient.imposed(doc.ambient):
        fake_tensors.run_nodes_on_fakes(graph, decoder.mode)
    shapes.forget_answers()
    _impose_counters(doc)  # operators of higher order have counted


def _impose_counters(doc: CheckpointDoc) -> None:
    for key, setter in _COUNTERS.items():
        if isinstance(value := doc.extra.get(key), int):
            setter(value)


def _settings(doc: CheckpointDoc) -> dict[str, bool]:
    settings = doc.extra.get("fake_mode")
    return {k: bool(v) for k, v in settings.items()} if isinstance(settings, Mapping) else {}


@contextlib.contextmanager
def _own_tables(doc: CheckpointDoc, *, trust: bool) -> Iterator[list[str]]:
    """Add to Inductor's tables what the program had added; yields what was left out."""
    loaders = objects.kept(doc, trust=trust)
    known = doc.extra.get(objects.KEY)
    left = [
        f"{name} (code of the program's own: add --trust if you trust who made the store)"
        for name in as_object(known)
        if name.startswith(added_entries.PREFIX) and name not in loaders
    ]
    stand_in_for(doc)  # an entry may be for an operator that is not here
    with added_entries.imposed(loaders) as more:
        yield left + more


@contextlib.contextmanager
def imposed(doc: CheckpointDoc, *, trust: bool = False, attempt: int = 0) -> Iterator[list[str]]:
    """Impose the checkpoint's config, ambient state and counters; caches are off.

    Yields the config entries that were left out, with the reason.
    """
    with ExitStack() as stack:
        left = stack.enter_context(
            config.patched(doc.config, trust=trust, objects=objects.kept(doc, trust=trust))
        )
        left += stack.enter_context(_own_tables(doc, trust=trust))
        stack.enter_context(configs.caches_off())
        stack.enter_context(ambient.imposed(doc.ambient))
        stack.enter_context(contexts.compile_context(doc.extra.get("compile_id"), attempt))
        _impose_counters(doc)
        floats = doc.extra.get("specialized_floats")
        set_specialized_floats(str(name) for name in floats) if isinstance(floats, list) else None
        yield left


def options_of(doc: CheckpointDoc, *, trust: bool = False) -> dict[str, object]:
    """Return the options of the recorded `torch.compile` call.

    Raises `UntrustedError` when one of them leads outside (a command, a path, a callable).
    """
    kept, left = config.restorable(list_only(doc.extra.get("options")), trust=trust)
    if left:
        raise UntrustedError(
            f"the compile was given options that name code, commands or paths: {', '.join(left)}; "
            "use --trust to restore them"
        )
    loaders = objects.kept(doc, trust=trust)
    found: dict[str, object] = {}
    for entry in kept:
        key, tree = str(entry["key"]), entry["value"]  # type: ignore[call-overload,index]
        load = loaders.get(f"{objects.OPTION}{key}")
        found[key] = node_arguments.decode_value(tree, _no_leaf) if load is None else load()
    return found


def own_backend(doc: CheckpointDoc, *, trust: bool) -> Callable[..., object] | None:
    """Return the program's own backend out of the store; None without trust, and where none is
    kept.

    Raises `UnsupportedError` where it can't be loaded.
    """
    load = objects.kept(doc, trust=trust).get(objects.BACKEND)
    found = None if load is None or ":" not in doc.backend else load()
    return found if callable(found) else None


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"an option holds no {kind!r}, found {data!r:.60}")


def run(restored: Restored, *, backward: bool = False, trust: bool = False) -> object:
    """Feed a restored checkpoint to its stage; returns the compiled callable.

    `backward`: compile the backward graph as well, as the recorded program did when it called
    `backward()` (torch compiles it lazily, on the first real call).
    """
    if restored.doc.entry == "aot":
        return _run_aot(restored)
    if restored.request is not None:
        found = restored.request
        return decompose(found.program, *found.tables, found.loss, found.triton)
    return _run_graph(restored, backward, trust)


def _run_graph(restored: Restored, backward: bool, trust: bool) -> object:
    doc = restored.doc
    if pieces.is_piece(doc):
        with contexts.tracing_context(restored.mode), aot.backward_now(backward):
            return pieces.backend(doc)(restored.graph, restored.inputs)
    own = own_backend(doc, trust=trust)
    options = options_of(doc, trust=trust)
    backend: Callable[..., object] = own or backends.backend(doc.backend, options)
    with contexts.tracing_context(restored.mode), aot.backward_now(backward):
        return backend(backends.before_backend(restored.graph), restored.inputs)


def _run_aot(restored: Restored) -> object:
    arguments = decode_arguments(restored.doc.extra.get("kwargs"))
    aot_name = decode_graph_name(restored.doc.extra.get("aot_name"))
    donated = restored.doc.extra.get("donated")
    indices = [int(str(index)) for index in donated] if isinstance(donated, list) else None
    with contexts.tracing_context(restored.mode, aot_name, indices):
        return code_generation.compile_fx_inner(restored.graph, restored.inputs, arguments)


def execute(doc: CheckpointDoc, compiled: object) -> tuple[object, list[object]]:
    """Run a compiled graph once, on synthesised inputs of the recorded layout.

    Returns its results and the inputs. The backward is `results.run_backward`.
    """
    inputs = _real_inputs(doc)
    return _call(doc, compiled, list(inputs)), inputs


def results_of(doc: CheckpointDoc, function: object = None) -> list[object]:
    """Return the results of a compiled graph (by default the graph itself) on synthesised inputs.

    The inputs follow the results, as they are after the call: a graph may write to its inputs.
    """
    function = restore(doc).graph if function is None else function
    inputs = _real_inputs(doc)
    torch.manual_seed(0)
    return tensors_of([_call(doc, function, list(inputs)), inputs])


def _real_inputs(doc: CheckpointDoc) -> list[object]:
    table = snapshots.decode_symbols(doc.shape_env)
    return synthesise_all(doc.inputs, seed=0, hints=doc.hints, table=table)


def _call(doc: CheckpointDoc, function: object, inputs: list[object]) -> object:
    """Call a graph: Inductor's code takes one list, code that Dynamo calls takes arguments."""
    assert callable(function)
    boxed = doc.entry == "aot" and not isinstance(function, GraphModule)
    return function(inputs) if boxed else function(*inputs)

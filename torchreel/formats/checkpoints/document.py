"""Checkpoints: the complete input of a stage, enough to start a replay there.

Lives here: `CheckpointDoc` and the three ways to take one.  Not here: restoring one
(`torchreel.replay.child.restore`), where it is kept (the `checkpoints` table).

- `graph`: the Dynamo graph as it reaches the backend, its fake inputs, the ShapeEnv.
- `aot`: an ATen graph as it enters Inductor (inference, forward or backward).
- `export`: an exported program that is about to be decomposed, with the decompositions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from torchreel.errors import UnsupportedError
from torchreel.formats import sources, symbols
from torchreel.formats.checkpoints import ambient, config, exported_programs
from torchreel.formats.checkpoints.inductor_call import encode_arguments
from torchreel.formats.graphs.codec import encode_graph
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.shape_env import answers, snapshots
from torchreel.formats.targets import NOT_PORTABLE, is_admitted
from torchreel.formats.tensors.check import check_description
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.fields import INFERENCE
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.documents.kinds import list_only, required_list, required_object
from torchreel.torch_compat import counters, distributed, fx, shapes
from torchreel.torch_compat.autograd import aot
from torchreel.torch_compat.dynamo import automatic_dynamic, backends, contexts
from torchreel.torch_compat.dynamo.contexts import Source
from torchreel.torch_compat.inductor import code_generation
from torchreel.torch_compat.tensors import fake_tensors
from torchreel.torch_compat.tensors.fake_tensors import FakeTensorMode

ENTRIES = ("graph", "aot", "export")
_LAYOUT = ("leaf", "requires_grad", "parameter", "flags", "storage", "storage_size")
_list = partial(required_list, what="the checkpoint")
_object = partial(required_object, what="the checkpoint")


@dataclass(frozen=True)
class CheckpointDoc:
    """The input of a stage as data; `inputs` has one description per placeholder."""

    entry: str
    partition: str
    graph: GraphDoc
    inputs: tuple[Json, ...]
    shape_env: Mapping[str, Json]
    config: tuple[Json, ...]
    ambient: Mapping[str, Json]
    extra: Mapping[str, Json]

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, over which a digest is taken."""
        before = canonical_json(
            {
                "ambient": self.ambient, "config": list(self.config), "entry": self.entry,
                "extra": self.extra,
            }
        )  # fmt: skip
        after = canonical_json(
            {
                "inputs": list(self.inputs), "partition": self.partition,
                "shape_env": self.shape_env,
            }
        )  # fmt: skip
        # Half of it is the graph, which its row has as well: it is spelled once for both.
        return b'%b,"graph":%b,%b' % (before[:-1], self.graph.to_bytes(), after[1:])

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointDoc:
        """Return the checkpoint of `to_bytes`.  Raises `UnsupportedError` when it is malformed."""
        try:
            doc = parse_json(data)
        except ValueError as error:
            raise UnsupportedError(f"the checkpoint is not JSON: {error}") from error
        found = cls.from_json(doc)
        found.check()
        return found

    @classmethod
    def from_json(cls, doc: Json) -> CheckpointDoc:
        """Return the checkpoint of a parsed document, its descriptions as they are (`check`).

        Raises `UnsupportedError` as `from_bytes` does.
        """
        if not isinstance(doc, Mapping) or doc.get("entry") not in ENTRIES:
            raise UnsupportedError("the blob is not a checkpoint of a kind that this version knows")
        graph = GraphDoc.from_json(doc.get("graph"))
        graph.check_order()
        return cls(
            str(doc["entry"]), str(doc.get("partition", "")), graph,
            tuple(_list(doc, "inputs")), _object(doc, "shape_env"), tuple(_list(doc, "config")),
            _object(doc, "ambient"), _object(doc, "extra"),
        )  # fmt: skip

    def check(self) -> None:
        """Raise `UnsupportedError` for malformed descriptions, hints or entries of a config.

        Whatever a store holds is checked once; candidates that are made of it are not.
        """
        if len(self.inputs) != len(self.graph.placeholders):
            raise UnsupportedError(
                f"the checkpoint has {len(self.inputs)} inputs for a graph of "
                f"{len(self.graph.placeholders)}"
            )
        self.graph.check_values()
        for description in self.inputs:
            check_description(description)
        config.check_entries(self.config)
        known = snapshots.symbols_of(self.shape_env)
        for symbol in self.hints:
            if symbol not in known:
                raise UnsupportedError(f"the symbol {symbol!r:.40} has a hint, and is not declared")

    @property
    def backend(self) -> str:
        """The backend's name in torch's registry, or `module:qualname`."""
        return str(self.extra.get("backend", "inductor"))

    @property
    def hints(self) -> dict[str, Json]:
        """The hint of each backed symbol."""
        return snapshots.hints(self.shape_env)

    def opaque(self) -> list[str]:
        """Return the parts without a portable form, by name, with the reason; [] if it replays."""
        found = [
            f"input {i}: {d.get('type')} ({d.get('reason')})"
            for i, d in enumerate(self.inputs)
            if isinstance(d, Mapping) and d.get("k") == "opaque"
        ]
        return found + [
            f"{'  ' * depth}target {target.removeprefix(NOT_PORTABLE)}"
            for depth, target, _ in self.graph.targets()
            if target.startswith(NOT_PORTABLE) and not is_admitted(target)
        ]


def graph_checkpoint(
    gm: GraphModule,
    example_inputs: Sequence[object],
    backend: object = None,
    parameter_sources: Mapping[str, Source] | None = None,
    fakes: Sequence[object] | None = None,
) -> CheckpointDoc:
    """Return the `graph` checkpoint of a Dynamo graph, to be taken before the backend runs.

    `example_inputs` are what Dynamo hands to the backend: real tensors and SymInts.  The tensors
    are only looked at (layout, aliasing, flags), never read.  `parameter_sources` is the
    OutputGraph's `param_name_to_source`, which tells AOTAutograd that the graph is Dynamo's.
    `fakes` are the fake values that the inputs stand for, None for one that is taken as it is; by
    default those that Dynamo noted in the graph.  Where they are given, the graph may have been
    traced with another fake mode than it is compiled with.
    """
    mode = fake_tensors.fake_mode_of(gm if fakes is None else None, example_inputs)
    encoder, known = Encoder(), sources.Known()
    with fake_tensors.no_dispatch():
        if fakes is None:
            inputs_of_graph = zip(
                gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True
            )
            fakes = [fx.fake_of_input(node, real) for node, real in inputs_of_graph]
        changed = fx.inputs_with_other_data(gm)
        inputs = _Inputs(encoder, fakes, changed).describe(example_inputs)
        name, options = backends.backend_of(backend)
        extra: dict[str, Json] = {
            "backend": name,
            "options": [config.encode_entry("inductor", k, v) for k, v in sorted(options.items())],
            "aot_counter": counters.aot_counter(),
            "graph_counter": counters.graph_counter(),
            "checkpoint_counter": counters.checkpoint_counter(),
            "region_call_counter": counters.region_call_counter(),
            "specialized_floats": list(automatic_dynamic.specialized_floats()),
            "fake_mode": fake_tensors.fake_mode_settings(mode),
            "first_row_length": fake_tensors.first_row_length(mode),
            "class_names": _class_names(gm),
            "parameter_sources": sources.encode_named(parameter_sources or {}, known),
            **_compile_id(),
        }
        if mode is not None and mode.shape_env is not None:
            extra["shape_answers"] = answers.encode(mode.shape_env)
            extra["converted_tensors"] = fake_tensors.converted_tensors(
                mode
            ) or fake_tensors.to_be_converted(example_inputs)
        # With freezing Inductor writes small parameters into its code: no replay without them.
        state = {} if code_generation.is_freezing() else parameter_sources or {}
        graph = encode_graph(gm, known=known, state=state)
        return _checkpoint("graph", "", graph, inputs, mode, extra)


class _Inputs:
    """Describes inputs: sizes of the fake ones (symbolic), layout and aliasing of the real ones."""

    def __init__(
        self, encoder: Encoder, fakes: Sequence[object], changed: Sequence[object]
    ) -> None:
        self._encoder, self._fakes = encoder, fakes
        self._changed = set(map(id, changed))
        self._objects: dict[int, int] = {}
        self._bases = {id(fake._base) for fake in fakes if _is_view(fake)}  # type: ignore[attr-defined]

    def describe(self, reals: Sequence[object]) -> tuple[Json, ...]:
        """Return the descriptions of all."""
        return tuple(itertools.starmap(self._input, zip(self._fakes, reals, strict=True)))

    def _input(self, fake: object, real: object) -> Json:
        if isinstance(fake, (list, tuple)) and isinstance(real, (list, tuple)):
            # Compiled autograd hands all tensors of a backward over in one list.
            empty = self._encoder.describe(real[:0])
            if isinstance(empty, Mapping) and len(fake) == len(real):
                return {
                    **empty,
                    "items": list(itertools.starmap(self._input, zip(fake, real, strict=True))),
                }
        if fake is None or not isinstance(real, torch.Tensor):
            return self._encoder.describe(real)
        symbolic = Encoder(unreplaced=True, objects=self._objects).describe(fake)
        concrete = self._encoder.describe(real)
        if not isinstance(symbolic, Mapping) or not isinstance(concrete, Mapping):
            return concrete
        if id(fake) in self._changed:
            symbolic = {**symbolic, **_layout_before(real)}
            symbolic.pop("unreplaced", None)
        merged = {**_merged(symbolic, concrete)}
        if id(fake) in self._bases:
            merged["object"] = self._number(fake)
        if _is_view(fake) and _is_view(real):
            base = {**self._input(fake._base, real._base)}  # type: ignore[attr-defined,dict-item]
            merged["view"] = {"base": base, "creation": fake_tensors.creation_of_view(real)}
        return merged

    def _number(self, fake: object) -> int:
        return self._objects.setdefault(id(fake), len(self._objects))


def _layout_before(real: torch.Tensor) -> dict[str, Json]:
    """Return the layout that the fake of an input had before its data was set.

    Dynamo set it while it traced, and AOTAutograd makes a new fake of the input.
    """
    layout = fake_tensors.layout_as_converted(real)
    size, stride = ([symbols.encode_expr(number) for number in numbers] for numbers in layout)
    return {"size": size, "stride": stride, "offset": int(real.storage_offset())}


def _is_view(value: object) -> bool:
    """Return True if autograd takes a tensor for a view of another plain one."""
    plain = isinstance(value, torch.Tensor) and not fake_tensors.is_wrapper_subclass(value)
    if not plain or not value._is_view() or value._base is None:  # type: ignore[attr-defined]
        return False
    base = value._base  # type: ignore[attr-defined]
    both = value.layout is torch.strided and base.layout is torch.strided  # type: ignore[attr-defined]
    return both and not fake_tensors.is_wrapper_subclass(base)


def _merged(symbolic: Mapping[str, Json], concrete: Mapping[str, Json]) -> dict[str, Json]:
    """Return a description with the layout of another, also for the inner tensors of a subclass."""
    layout = {key: concrete[key] for key in _LAYOUT if key in concrete}
    if isinstance(concrete.get("flags"), list):
        layout["flags"] = _flags(symbolic.get("flags"), concrete["flags"])
    ours, theirs = symbolic.get("inner"), concrete.get("inner")
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and set(ours) == set(theirs):
        layout["inner"] = {name: _merged(ours[name], theirs[name]) for name in ours}  # type: ignore[arg-type]
    return {**symbolic, **layout}


def _flags(symbolic: Json, concrete: Json) -> list[Json]:
    """Return the flags of a real tensor, but for inference those of its fake.

    Dynamo's fake of an inference tensor is none.
    """
    real = list_only(concrete)
    fake = list_only(symbolic)
    kept: list[Json] = [flag for flag in real if flag != INFERENCE]
    return [*kept, INFERENCE] if INFERENCE in fake else kept


def aot_checkpoint(
    gm: GraphModule, example_inputs: Sequence[object], kwargs: Mapping[str, Any]
) -> CheckpointDoc:
    """Return the `aot` checkpoint of an ATen graph, to be taken as it enters `compile_fx_inner`."""
    mode = fake_tensors.fake_mode_of(gm, example_inputs)
    encoder = Encoder(unreplaced=True)
    with fake_tensors.no_dispatch():
        inputs = tuple(encoder.describe(value) for value in example_inputs)
        extra: dict[str, Json] = {
            "backend": "inductor",
            "kwargs": encode_arguments(kwargs),
            "fake_mode": fake_tensors.fake_mode_settings(mode),
            "aot_name": aot.aot_graph_name(),
            "donated": aot.donated_inputs(),
            "class_names": _class_names(gm),
            **({"aot_compilation": True} if code_generation.is_aot_compilation() else {}),
            **_compile_id(),
        }
        # One encoder for both: the inputs are the values of the placeholders, nested ones included.
        graph = encode_graph(gm, encoder)
        extra["last_sequence"] = _last_sequence(gm, graph)
        if mode is not None and mode.shape_env is not None:
            extra["shape_answers"] = answers.encode(mode.shape_env)
        return _checkpoint("aot", _partition(kwargs), graph, inputs, mode, extra)


def export_checkpoint(request: exported_programs.DecompositionRequest) -> CheckpointDoc:
    """Return the `export` checkpoint of an exported program, to be taken before it is decomposed.

    Its inputs are the values that its placeholders have; state and constants are described.
    """
    gm = request.program.graph_module
    fakes = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    mode = fake_tensors.fake_mode_of(gm, fakes)
    encoder = Encoder(unreplaced=True)
    with fake_tensors.no_dispatch():
        inputs = tuple(encoder.describe(value) for value in fakes)
        extra: dict[str, Json] = {
            "backend": "run_decompositions",
            "aot_counter": counters.aot_counter(),
            "graph_counter": counters.graph_counter(),
            "checkpoint_counter": counters.checkpoint_counter(),
            "region_call_counter": counters.region_call_counter(),
            "fake_mode": fake_tensors.fake_mode_settings(mode),
            "class_names": _class_names(gm),
            exported_programs.KEY: exported_programs.encode(request),
        }
        if mode is not None and mode.shape_env is not None:
            extra["shape_answers"] = answers.encode(mode.shape_env)
        return _checkpoint("export", "", encode_graph(gm, encoder), inputs, mode, extra)


def _last_sequence(gm: GraphModule, doc: GraphDoc) -> Json:
    """Return the document's number for autograd's current sequence number.

    Nodes that are traced now get the same one. None if no node of the graph has it.
    """
    last = fx.last_sequence()
    for node, encoded in zip(gm.graph.nodes, doc.nodes, strict=True):
        if node.meta.get("seq_nr") == last:
            return encoded.meta.get("seq_nr")
    inner = (_last_sequence(gm.get_submodule(path), body) for path, body in doc.modules.items())  # type: ignore[arg-type]
    return next((number for number in inner if number is not None), None)


def _partition(kwargs: Mapping[str, Any]) -> str:
    if kwargs.get("is_backward"):
        return "backward"
    return "inference" if kwargs.get("is_inference") else "forward"


def _class_names(gm: GraphModule) -> dict[str, Json]:
    """Return the names of the classes of a graph and its bodies, by path: they print with them."""
    return {
        path: type(module).__name__
        for path, module in gm.named_modules()
        if isinstance(module, GraphModule)
    }


def _compile_id() -> dict[str, Json]:
    compile_id = contexts.CompileContext.current_compile_id()
    return {"compile_id": str(compile_id)} if compile_id is not None else {}


def _checkpoint(
    entry: str,
    partition: str,
    graph: GraphDoc,
    inputs: tuple[Json, ...],
    mode: FakeTensorMode | None,
    extra: Mapping[str, Json],
) -> CheckpointDoc:
    env = mode.shape_env if mode is not None else None
    if (world := distributed.world()) is not None:
        extra = {**extra, "world": world}
    snapshot = snapshots.encode_shape_env(env or shapes.ShapeEnv())
    return CheckpointDoc(
        entry, partition, graph, inputs, snapshot, tuple(config.encode_config()),
        ambient.encode_ambient(), {**extra, "symbolic": env is not None},
    )  # fmt: skip

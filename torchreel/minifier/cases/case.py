"""A graph case: a checkpoint, and how to run it so that it fails.

Lives here: `Case`, its digest, and how one is made from a recorded checkpoint. Not here: how a case
is edited (`graph_edits`), ordered (`order`) or run (`oracle`).

Two cases are the same case if they differ only in the names of their nodes, or in what can be
computed from the rest (the value descriptions of call nodes). They have one digest and one verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.checkpoints.split_graphs import with_numbers
from torchreel.formats.graphs import KERNELS, policies
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.graphs.operators import operators_of
from torchreel.minifier.cases import canonical_text as texts
from torchreel.minifier.cases.descriptions import integer
from torchreel.replay.accuracy import comparators
from torchreel.replay.compare.causes import CACHES
from torchreel.store.documents.jsontypes import Json, digest_of, parse_json
from torchreel.store.documents.kinds import as_object

Harness = Literal["compile", "run", "train", "accuracy", "nodes"]
HARNESSES: tuple[Harness, ...] = ("compile", "run", "train", "accuracy", "nodes")
"""From the least to the most that is done with a case; `nodes` is for an analysis alone."""


BACKENDS = ("aot_eager", "aot_eager_decomp_partition", "inductor")
"""Torch's own, from the one that does least; of others nobody knows."""

VALUE_KEYS = ("val", "example_value")
# What the compiler reads of a node's meta and the worker can't compute: nothing else is kept.
_KEPT_META = texts.DERIVED_META
# What a stage's entry point is given besides the graph and its inputs.
_KEPT_EXTRA = (
    "backend",
    "options",
    "fake_mode",
    "kwargs",
    "specialized_floats",
    "operators",
    "objects",
    "piece",
    KERNELS,
)
# Arguments that count inputs or name an earlier graph: they mean nothing once the graph is edited.
_STALE_KWARGS = ("static_input_idxs", "graph_id", "boxed_forward_device_index")
# State of a ShapeEnv that says what its symbols are; the rest is what the recorded trace learnt.
_KEPT_STATE = (
    "backed_var_to_val",
    "var_to_range",
    "var_to_sources",
    "var_to_hint_override",
    "size_like",
    "unbacked_inputs",
)


@dataclass(frozen=True)
class Case:
    """A checkpoint and the way to run it; immutable, hashable by `digest`."""

    checkpoint: CheckpointDoc
    harness: Harness = "compile"
    backend: str = "inductor"
    imports: tuple[str, ...] = ()
    """Modules that the user allowed to import (they may register operators and backends)."""
    seed: int = 0
    repeats: int = 1
    """The number of runs after which it counts as not failing."""
    eager: bool = True
    """True if eager has to accept it (off where eager refuses the recorded case itself)."""
    comparator: str = comparators.DEFAULT
    """The comparator that says that two results differ (`replay.accuracy.comparison`)."""

    @property
    def graph(self) -> GraphDoc:
        """Return the outer graph."""
        return self.checkpoint.graph

    @property
    def is_exact(self) -> bool:
        """Return True if this is the recording to the letter: nothing may be computed anew."""
        return "guards" in self.checkpoint.shape_env

    @property
    def call_nodes(self) -> int:
        """Call nodes of the outer graph."""
        return self.graph.call_nodes

    @cached_property
    def canonical(self) -> str:
        """Return the canonical text, over which the digest is taken."""
        inputs = texts.text_of_parts(self.checkpoint.inputs)
        graph = texts.canonical_text(self.graph)
        return f'{{{self._surroundings},"graph":{graph},"inputs":{inputs}}}'

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the canonical case."""
        return digest_of(self.canonical.encode("utf-8", "surrogatepass"))

    @cached_property
    def _surroundings(self) -> str:
        """Return the members of the canonical text in which neither the graph nor an input
        occurs.
        """
        doc = self.checkpoint
        parts: dict[str, Json] = {
            **self._how(),
            "entry": doc.entry,
            "partition": doc.partition,
            "shape_env": doc.shape_env,
            "config": doc.config,
            "ambient": doc.ambient,
            "extra": doc.extra,
        }
        return texts.text_of_members(parts)

    def _how(self) -> dict[str, Json]:
        return {
            "harness": self.harness,
            "backend": self.backend,
            "imports": list(self.imports),
            "seed": self.seed,
            "repeats": self.repeats,
            "eager": self.eager,
            **({"comparator": self.comparator} if self.comparator != comparators.DEFAULT else {}),
        }

    @property
    def total_call_nodes(self) -> int:
        """Call nodes of all graphs."""
        return self.graph.total_call_nodes

    @property
    def unit(self) -> str:
        """Return the unit in which `call_nodes` counts."""
        return "call node"

    @property
    def kind(self) -> str:
        """Return the kind of the case."""
        return "graph"

    @property
    def is_part(self) -> bool:
        """Return True if it is one partition alone."""
        return self.checkpoint.entry == "aot"

    @property
    def opens_levels(self) -> bool:
        """Return True for a graph that has calls of torch.func's own, which open its levels."""
        return any(node.target.startswith("fn:torch._functorch.") for node in self.graph.nodes)

    @property
    def is_code(self) -> bool:
        """Return False: a graph is data."""
        return False

    @property
    def summary(self) -> str:
        """Return the case in a few words."""
        eager = "" if self.eager else ", without eager"
        return f"the {self.checkpoint.entry!r} checkpoint ({self.harness}{eager})"

    def repeating(self, times: int) -> Case:
        """Return the case with another `repeats`."""
        return replace(self, repeats=times)

    def refreshed(self, values: Mapping[str, Json]) -> Case:
        """Return the case with fresh descriptions of what its call nodes compute, by node name."""
        return refreshed(self, values)

    def trivial(self) -> Case | None:
        """Return the case with a graph that returns its only input.

        None when nothing is computed.
        """
        return trivial(self) if self.call_nodes else None

    def with_graph(self, graph: GraphDoc, inputs: tuple[Json, ...] | None = None) -> Case:
        """Return the case with another outer graph (and the inputs that belong to it)."""
        doc = self.checkpoint
        inputs = doc.inputs if inputs is None else inputs
        made = replace(self, checkpoint=replace(doc, graph=graph, inputs=inputs))
        vars(made)["_surroundings"] = self._surroundings  # the same, and costly to write down
        return made

    def to_json(self) -> dict[str, Json]:
        """Return the complete case as data, with names and descriptions."""
        doc = self.checkpoint
        checkpoint: Json = {
            "entry": doc.entry,
            "partition": doc.partition,
            "graph": doc.graph.to_json(),
            "inputs": list(doc.inputs),
            "shape_env": doc.shape_env,
            "config": list(doc.config),
            "ambient": doc.ambient,
            "extra": doc.extra,
        }
        return {**self._how(), "checkpoint": checkpoint}

    @classmethod
    def from_json(cls, data: Json) -> Case:
        """Return the case of a parsed document.  Raises `UnsupportedError` when it is malformed."""
        if not isinstance(data, Mapping) or data.get("harness") not in HARNESSES:
            raise UnsupportedError("the document is not a case of a kind that this version knows")
        imports = data.get("imports")
        return cls(
            CheckpointDoc.from_json(data.get("checkpoint")),
            cast(Harness, data["harness"]),
            str(data.get("backend", "inductor")),
            tuple(str(name) for name in imports) if isinstance(imports, list) else (),
            integer(data, "seed", 0),
            integer(data, "repeats", 1),
            bool(data.get("eager", True)),
            str(data.get("comparator", comparators.DEFAULT)),
        )

    def with_imports(self, imports: tuple[str, ...]) -> Case:
        """Return the case with other modules to import."""
        return replace(self, imports=imports)

    def to_bytes(self) -> bytes:
        """Return the document that the store keeps: the canonical JSON of `to_json`."""
        return self._document

    @cached_property
    def _document(self) -> bytes:
        """Return the document that a worker and the store get."""
        doc = self.checkpoint
        graph = texts.document_text(doc.graph)
        # Keys stand in their order, as in all canonical JSON.
        before: dict[str, Json] = {
            "ambient": doc.ambient,
            "config": doc.config,
            "entry": doc.entry,
            "extra": doc.extra,
        }
        after: dict[str, Json] = {"partition": doc.partition, "shape_env": doc.shape_env}
        inputs = texts.text_of_parts(doc.inputs)
        how = self._how()
        members = texts.text_of_members
        first = members({"backend": how.pop("backend")})
        inner = f'{members(before)},"graph":{graph},"inputs":{inputs},{members(after)}'
        text = f'{{{first},"checkpoint":{{{inner}}},{members(how)}}}'
        return text.encode("utf-8", "surrogatepass")

    @classmethod
    def from_bytes(cls, data: bytes) -> Case:
        """Read what `to_bytes` wrote."""
        return cls.from_json(parse_json(data))

    @classmethod
    def from_checkpoint(
        cls,
        doc: CheckpointDoc,
        harness: Harness = "compile",
        *,
        imports: tuple[str, ...] = (),
        lean: bool = True,
    ) -> Case:
        """Return the case of a recorded checkpoint.

        `lean` drops what a run does not need: stacks and other metadata, config entries for which
        a replay has values of its own, and what the recorded ShapeEnv had learnt while tracing
        (guards, replacements: running the graph finds them again). Not lean is the recording to
        the letter.
        """
        return cls(_lean(doc) if lean else doc, harness, doc.backend, imports)


def _lean(doc: CheckpointDoc) -> CheckpointDoc:
    doc = with_numbers(doc)
    return replace(
        doc,
        graph=_lean_graph(doc.graph),
        inputs=_lean_inputs(doc.inputs),
        shape_env=lean_shape_env(doc.shape_env),
        config=tuple(entry for entry in doc.config if _entry_name(entry) not in CACHES),
        extra=_lean_extra({**_operators(doc), **doc.extra}),
    )


def _operators(doc: CheckpointDoc) -> dict[str, Json]:
    """Collect what the graph says of operators that torch does not define.

    A lean graph does not.
    """
    found: Json = operators_of([doc.graph])
    return {"operators": found} if found else {}


def _entry_name(entry: Json) -> tuple[Json, Json]:
    fields = as_object(entry)
    return fields.get("module"), fields.get("key")


def _lean_inputs(inputs: tuple[Json, ...]) -> tuple[Json, ...]:
    """Leave out the storages that belong to one input alone.

    There is nothing to say about those.
    """
    fields = [as_object(value) for value in inputs]
    uses = Counter(found["storage"] for found in fields if "storage" in found)
    return tuple(
        {k: v for k, v in found.items() if k not in ("storage", "storage_size")}
        if uses[found.get("storage")] == 1 and found.get("offset") == 0
        else value
        for found, value in zip(fields, inputs, strict=True)
    )


def _lean_graph(graph: GraphDoc) -> GraphDoc:
    nodes = tuple(replace(node, meta=_lean_meta(node)) for node in graph.nodes)
    modules = {name: _lean_graph(inner) for name, inner in graph.modules.items()}
    answers = policies.answers_of(graph.extra)
    extra = {} if answers is None else policies.with_answers({}, answers)
    return GraphDoc(nodes, modules, graph.attributes, extra)


def _lean_meta(node: NodeDoc) -> dict[str, Json]:
    return {key: node.meta[key] for key in _KEPT_META if key in node.meta}


def lean_shape_env(snapshot: Mapping[str, Json]) -> dict[str, Json]:
    """Return a snapshot with its symbols and their hints and ranges, and nothing that tracing
    learnt.
    """
    known = as_object(snapshot.get("state"))
    kept: dict[str, Json] = {key: known[key] for key in _KEPT_STATE if key in known}
    return {
        "settings": snapshot.get("settings", {}),
        "symbols": snapshot.get("symbols", {}),
        "state": kept,
    }


def _lean_extra(extra: Mapping[str, Json]) -> dict[str, Json]:
    kept = {key: extra[key] for key in _KEPT_EXTRA if key in extra}
    kwargs = kept.get("kwargs")
    if isinstance(kwargs, Mapping):
        kept["kwargs"] = {k: v for k, v in kwargs.items() if k not in _STALE_KWARGS}
    return kept


def refreshed(case: Case, values: Mapping[str, Json]) -> Case:
    """Return the case with fresh descriptions of what its call nodes compute, by node name."""
    if not values:
        return case
    nodes = tuple(_with_value(node, values.get(node.name)) for node in case.graph.nodes)
    made = case.with_graph(replace(case.graph, nodes=nodes))
    # Nothing derived is in the canonical text: it is the same, and so is its digest.
    vars(made).update(
        {key: vars(case)[key] for key in ("canonical", "digest") if key in vars(case)}
    )
    return made


def _with_value(node: NodeDoc, value: Json) -> NodeDoc:
    key = "val" if "val" in node.meta else "example_value"
    if value is None or not node.is_call or node.meta.get(key) == value:
        return node
    return replace(node, meta={**node.meta, key: value})


_PLAIN: Json = {
    "k": "tensor", "dtype": "float32", "device": "cpu", "layout": "strided", "size": [2],
    "stride": [1], "offset": 0, "requires_grad": False, "leaf": True, "parameter": False,
    "flags": [],
}  # fmt: skip


def trivial(case: Case) -> Case:
    """Return the case with a graph that returns its only input, a tensor of two elements."""
    key = "val" if case.checkpoint.entry == "aot" else "example_value"
    placeholder = NodeDoc("x", "placeholder", "x", [], {}, {key: _PLAIN})
    output = NodeDoc("output", "output", "output", [{"t": [{"n": "x"}]}])
    return case.with_graph(GraphDoc((placeholder, output)), (_PLAIN,))

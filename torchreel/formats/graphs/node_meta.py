"""Metadata of graph nodes as data: one codec per key that the compiler reads later.

Lives here: the table from key to codec.  Not here: the graph around it (`graphs`).  Keys without a
codec are written as tagged trees; what has no portable form is left out when a graph is rebuilt.

Identities (module ids, graph ids, autograd sequence numbers) mean nothing outside their process:
they are numbered here in the order in which a document meets them, so that a recorded graph and a
replayed one spell alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import descriptors, names, node_arguments, sources, symbols, targets
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.fakes import Decoder
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import fx

# Live objects, rebuilt from the source or not needed; times.
_LEFT_OUT = frozenset({"grapharg", "creation_timestamp"})
# What a program wrote with `torch.fx.traceback.annotate`.
_OF_PROGRAM = "custom"
# Text of many lines; Inductor keeps it for messages and debugging, and writes it into code only
# where `checkpoints.config` has it told to, with trust.
_LINES = frozenset({"stack_trace", "output_stack_traces"})


class MetaEncoder:
    """Encodes the `meta` of every node of one document."""

    def __init__(self, encoder: Encoder, known: sources.Known | None = None) -> None:
        self.encoder = encoder
        self.sources: sources.Known = {} if known is None else known
        self._numbers: dict[str, dict[object, int]] = {}
        self._module_stacks: dict[object, Json] = {}

    def number(self, kind: str, identity: object) -> int:
        """Return a small number for an identity, in order of first use."""
        table = self._numbers.setdefault(kind, {})
        return table.setdefault(identity, len(table))

    def encode(self, meta: Mapping[str, Any]) -> dict[str, Json]:
        """Return the portable part of a node's meta."""
        return {
            key: self._one(key, value)
            for key, value in meta.items()
            if key not in _LEFT_OUT and isinstance(key, str)
        }

    def _one(self, key: str, value: object) -> Json:
        codec = _ENCODERS.get(key)
        if codec is not None and value is not None:
            return codec(self, value)
        return self._general(value)

    def _general(self, value: object) -> Json:
        """Return any other key: fake values by description, the rest as a tagged tree."""
        if fx.holds_tensors(value):
            return {"described": _describe_nested(self.encoder, value)}
        return node_arguments.encode_value(value)


def _describe_nested(encoder: Encoder, value: object) -> Json:
    """Like `Encoder.describe`, through lists, tuples and dicts."""
    if isinstance(value, Mapping):
        rows: list[Json] = [
            [node_arguments.encode_value(k), _describe_nested(encoder, v)] for k, v in value.items()
        ]
        return {"k": "dict", "items": rows}
    if type(value) in (list, tuple):
        items = [_describe_nested(encoder, item) for item in value]  # type: ignore[attr-defined]
        return {"k": type(value).__name__, "items": items}
    return encoder.describe(value)


def _class_name(value: object) -> Json:
    if isinstance(value, str):
        return value
    if isinstance(value, type):
        return {"class": f"{value.__module__}.{value.__qualname__}"}
    text = targets.encode_target(value)
    return {"class": text.removeprefix("opaque:")} if text.startswith("opaque:") else {"fn": text}


def _encode_module_stack(self: MetaEncoder, stack: Any) -> Json:
    """Return a module stack as data, encoded once: the nodes of a module have equal ones."""
    known = tuple((key, path, cls) for key, (path, cls) in stack.items())
    if known not in self._module_stacks:
        self._module_stacks[known] = [
            [self.number("module", key), node_arguments.encode_value(path), _class_name(cls)]
            for key, path, cls in known
        ]
    return self._module_stacks[known]


def _encode_source_stack(self: MetaEncoder, stack: Any) -> Json:
    return [[str(name), _class_name(function)] for name, function in stack]


def _encode_from_node(self: MetaEncoder, chain: Any) -> Json:
    return [_encode_origin(self, origin.to_dict()) for origin in chain]


def _encode_origin(self: MetaEncoder, origin: Mapping[str, Any]) -> Json:
    return {
        "name": str(origin.get("name")),
        "target": fx.without_addresses(str(origin.get("target"))),
        "graph_id": self.number("graph", origin.get("graph_id")),
        "pass_name": str(origin.get("pass_name")),
        "action": str(origin.get("action")),
        "from_node": [_encode_origin(self, inner) for inner in origin.get("from_node") or []],
    }


def _encode_bindings(self: MetaEncoder, bindings: Any) -> Json:
    return [
        [symbols.encode_expr(symbol), descriptors.encode_record(path)]
        for symbol, path in (bindings or {}).items()
    ]


def _present(self: MetaEncoder, value: object) -> Json:
    return True


def _encode_value(self: MetaEncoder, value: object) -> Json:
    return _without_storage_size(self.encoder.describe(value))


def _without_storage_size(description: Json) -> Json:
    """Return a description without the size of its storage.

    That size belongs to the inputs. Behind a fake value, it is known only by chance.
    """
    if not isinstance(description, Mapping):
        return description
    kept = {key: value for key, value in description.items() if key != "storage_size"}
    if isinstance(items := kept.get("items"), list):
        kept["items"] = [_without_storage_size(item) for item in items]
    return kept


def _encode_description(self: MetaEncoder, value: object) -> Json:
    return descriptors.encode_record(value)


def _encode_sequence(self: MetaEncoder, value: object) -> Json:
    return self.number("sequence", value)


_ENCODERS: dict[str, Callable[[MetaEncoder, Any], Json]] = {
    "example_value": _encode_value,
    "val": _encode_value,
    "nn_module_stack": _encode_module_stack,
    "fwd_nn_module_stack": _encode_module_stack,
    "source_fn_stack": _encode_source_stack,
    "fwd_source_fn_stack": _encode_source_stack,
    "from_node": _encode_from_node,
    "unbacked_bindings": _encode_bindings,
    "tensor_meta": _present,
    "desc": _encode_description,
    "seq_nr": _encode_sequence,
}


class MetaDecoder:
    """Rebuilds the `meta` of nodes; `lost` names what had no portable form."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.lost: list[str] = []

    def decode(self, meta: Mapping[str, Json]) -> dict[str, Any]:
        """Return the live meta of one node."""
        live: dict[str, Any] = {}
        for key, data in meta.items():
            if key == "tensor_meta":
                continue
            try:
                if key not in _LINES:
                    names.check_comment({key: data})
                live[key] = self._one(key, data)
            except UnsupportedError as error:
                self.lost.append(f"meta {key!r}: {error}")
        if meta.get("tensor_meta") and isinstance(live.get("val"), torch.Tensor):
            live["tensor_meta"] = fx.tensor_metadata(live["val"])
        return live

    def _one(self, key: str, data: Json) -> object:
        codec = _DECODERS.get(key)
        if codec is not None and data is not None:
            return codec(self, data)
        if isinstance(data, Mapping) and set(data) == {"described"}:
            return self._described(data["described"])
        leaf = self._carried if key == _OF_PROGRAM else self._leaf
        return node_arguments.decode_value(data, leaf)

    def _described(self, data: Any) -> object:
        kind, items = data.get("k"), data.get("items")
        if kind == "dict":
            return {
                node_arguments.decode_value(k, self._leaf): self._described(v) for k, v in items
            }
        if kind in ("list", "tuple") and "items" in data:
            inner = [self._described(item) for item in items]
            return inner if kind == "list" else tuple(inner)
        return self.decoder.fake(data)

    def _leaf(self, kind: str, data: Json) -> object:
        if kind == "sym" and isinstance(data, Mapping):
            return self.decoder.symbolic(str(data.get("type")), data.get("expr"))
        raise UnsupportedError(f"no portable form ({data!r:.80})")

    def _carried(self, kind: str, data: Json) -> object:
        """Return what the program wrote: torch hands it on, so a stand-in does where none is."""
        if kind == "opaque" and isinstance(data, Mapping):
            return node_arguments.StandIn(tuple((key, str(text)) for key, text in data.items()))
        return self._leaf(kind, data)


@cache
def stub_class(name: str) -> type:
    """Return a class that only carries a recorded name: a module class of the user's, or a
    function.

    torch's own module classes that are already imported are given back as they are.
    """
    module, _, qualname = name.rpartition(".")
    if module.startswith("torch.nn.") and module in sys.modules:
        found = getattr(sys.modules[module], qualname, None)
        if isinstance(found, type):
            return found
    return type(qualname, (), {"__module__": module, "__qualname__": qualname})


def _decode_class(data: Json) -> object:
    if isinstance(data, Mapping) and "fn" in data:
        return targets.decode_target(str(data["fn"]))
    return stub_class(str(data["class"])) if isinstance(data, Mapping) else data


def _decode_module_stack(self: MetaDecoder, data: Any) -> object:
    return {
        str(number): (node_arguments.decode_value(path, self._leaf), _decode_class(cls))
        for number, path, cls in data
    }


def _decode_source_stack(self: MetaDecoder, data: Any) -> object:
    return [(name, _decode_class(function)) for name, function in data]


def _decode_from_node(self: MetaDecoder, data: Any) -> object:
    return fx.node_sources(data)


def _decode_bindings(self: MetaDecoder, data: Any) -> object:
    return {
        symbols.decode_expr(symbol, self.decoder.table): descriptors.decode_path(path)
        for symbol, path in data
    }


def _decode_fake(self: MetaDecoder, data: Json) -> object:
    return self.decoder.fake(data)


def _decode_description(self: MetaDecoder, data: Json) -> object:
    return descriptors.decode_record(data)


_DECODERS: dict[str, Callable[[MetaDecoder, Any], object]] = {
    "example_value": _decode_fake,
    "val": _decode_fake,
    "nn_module_stack": _decode_module_stack,
    "fwd_nn_module_stack": _decode_module_stack,
    "source_fn_stack": _decode_source_stack,
    "fwd_source_fn_stack": _decode_source_stack,
    "from_node": _decode_from_node,
    "unbacked_bindings": _decode_bindings,
    "desc": _decode_description,
}

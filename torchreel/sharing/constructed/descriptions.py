"""Descriptions of tensors and symbolic numbers, member by member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchreel.sharing.constructed.scalars import (
    Symbols,
    constant_of,
    device_of,
    number_of,
    refused,
    whole,
)
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.tensors.fake_tensors import own_subclass

_TRUTHS = ("requires_grad", "leaf", "parameter")
_WHOLE = ("storage", "object", "dense_dim")
_FLAGS = ("conj", "neg", "inference", "zero", "mkldnn")
_WORDS = {"contents": ("positive",), "wrapper": ("functorch",)}
_SEQUENCES = ("list", "tuple", "size", "immutable_list")
_CREATIONS = (
    "DEFAULT",
    "IN_CUSTOM_FUNCTION",
    "MULTI_OUTPUT_NODE",
    "NO_GRAD_MODE",
    "INFERENCE_MODE",
)
_MOST_NESTING = 50


class Descriptions:
    """Makes descriptions of values, without a text or a name of the program."""

    def __init__(self, symbols: Symbols, pseudonyms: Pseudonyms) -> None:
        self.symbols, self.pseudonyms = symbols, pseudonyms

    def of(self, data: Json, depth: int = 0) -> Json:
        """Return the description of a value."""
        if data is None:
            return None
        if not isinstance(data, Mapping) or depth > _MOST_NESTING:
            raise refused("the value", data)
        kind = data.get("k")
        if kind in ("tensor", "subclass"):
            return self._tensor(data, depth)
        if kind in ("symint", "symfloat", "symbool"):
            return self._symbolic(str(kind), data)
        if kind in _SEQUENCES:
            held = [self.of(item, depth + 1) for item in list_only(data.get("items"))]
            return {"k": str(kind), "items": held}
        if kind in ("int", "bool", "float", "NoneType"):
            return {"k": str(kind), "v": number_of(data.get("v"))}
        if kind == "str":
            return {"k": "str", "v": self.pseudonyms.of("t", str(data.get("v")))}
        if kind == "generator":
            return {"k": "generator", "device": device_of(data.get("device"))}
        raise refused("an input of the kind", kind if kind != "opaque" else data.get("type"))

    def sizes(self, data: Json) -> Json:
        """Return a list of sizes."""
        if not isinstance(data, list):
            raise refused("the sizes", data)
        return [self.symbols.expression(item) for item in data]

    def _symbolic(self, kind: str, data: Mapping[str, Json]) -> Json:
        found: dict[str, Json] = {"k": kind, "expr": self.symbols.expression(data.get("expr"))}
        found["hint"] = number_of(data.get("hint"))
        if "unreplaced" in data:
            found["unreplaced"] = self.symbols.expression(data["unreplaced"])
        return found

    def _tensor(self, data: Mapping[str, Json], depth: int) -> Json:
        made = {"k": str(data["k"])}
        members = {key: self._member(key, data[key], depth) for key in _MEMBERS if key in data}
        return {**made, **members}

    def _member(self, key: str, data: Json, depth: int) -> Json:
        return _MEMBERS[key](self, key, data, depth)

    def _truth(self, key: str, data: Json, depth: int) -> Json:
        return bool(data)

    def _whole(self, key: str, data: Json, depth: int) -> Json:
        return whole(data)

    def _expression(self, key: str, data: Json, depth: int) -> Json:
        return self.symbols.expression(data)

    def _sizes(self, key: str, data: Json, depth: int) -> Json:
        return self.sizes(data)

    def _constant(self, key: str, data: Json, depth: int) -> Json:
        return constant_of(key, data)

    def _device(self, key: str, data: Json, depth: int) -> Json:
        return device_of(data)

    def _flags(self, key: str, data: Json, depth: int) -> Json:
        return [flag for flag in _FLAGS if isinstance(data, list) and flag in data]

    def _word(self, key: str, data: Json, depth: int) -> Json:
        if data not in _WORDS[key]:
            raise refused(f"the {key}", data)
        return data

    def _item(self, key: str, data: Json, depth: int) -> Json:
        return self.of(data, depth + 1)

    def _view(self, key: str, data: Json, depth: int) -> Json:
        fields = as_object(data)
        creation = str(fields.get("creation"))
        found: dict[str, Json] = {"base": self.of(fields.get("base"), depth + 1)}
        return {**found, "creation": creation if creation in _CREATIONS else "DEFAULT"}

    def _data(self, key: str, data: Json, depth: int) -> Json:
        if isinstance(data, list):
            return [self._data(key, item, depth) for item in data]
        return number_of(data)

    def _inner(self, key: str, data: Json, depth: int) -> Json:
        if not isinstance(data, Mapping):
            raise refused("a subclass of tensors with", data)
        if not all(name.isascii() and name.isidentifier() for name in data):
            raise refused("a subclass of tensors with", list(data))
        return {str(name): self.of(held, depth + 1) for name, held in data.items()}

    def _type(self, key: str, data: Json, depth: int) -> Json:
        if not isinstance(data, str) or not data.startswith("torch.") or own_subclass(data) is None:
            raise refused("the class", data)
        return data

    def _context(self, key: str, data: Json, depth: int) -> Json:
        if isinstance(data, list):
            return [self._context(key, item, depth) for item in data]
        if isinstance(data, Mapping) and set(data) == {"t"}:
            return {"t": self._context(key, data["t"], depth)}
        if isinstance(data, Mapping) and set(data) == {"d"} and isinstance(data["d"], list):
            pairs = [item for item in data["d"] if isinstance(item, list)]
            return {"d": [[_attribute(k), self._context(key, v, depth)] for k, v in pairs]}
        return number_of(data)


def _attribute(data: Json) -> Json:
    from torchreel.sharing import words_of_torch

    if not isinstance(data, str) or data not in words_of_torch.words().names:
        raise refused("the key", data)
    return data


_Make = Callable[[Descriptions, str, Any, int], Json]
_MEMBERS: dict[str, _Make] = {
    "dtype": Descriptions._constant, "layout": Descriptions._constant,
    "device": Descriptions._device, "size": Descriptions._sizes, "stride": Descriptions._sizes,
    "blocks": Descriptions._sizes, "offset": Descriptions._expression,
    "storage_size": Descriptions._expression, "unreplaced": Descriptions._sizes,
    "flags": Descriptions._flags, "item": Descriptions._item, "view": Descriptions._view,
    "data": Descriptions._data, "inner": Descriptions._inner, "type": Descriptions._type,
    "context": Descriptions._context,
    **dict.fromkeys(_TRUTHS, Descriptions._truth), **dict.fromkeys(_WHOLE, Descriptions._whole),
    **dict.fromkeys(_WORDS, Descriptions._word),
}  # fmt: skip
"""The members of the description of a tensor that leave, and how each is made."""

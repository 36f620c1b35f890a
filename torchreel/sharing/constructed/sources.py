"""Sources of symbols: where in the arguments a size was found, under pseudonyms."""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.sharing.constructed.scalars import number_of, refused
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.dynamo import rules

_INPUTS = ("local_name",)
_PROPERTIES = ("SIZE", "STRIDE", "STORAGE_OFFSET")
_PLAIN_INTEGER = 16
_MOST_NESTING = 50


def source(data: Json, pseudonyms: Pseudonyms, depth: int = 0) -> Json:
    """Return a Source, or a member of one; each text in it gets a pseudonym.

    So does a number that may be a key of the program's (`customers[9021034455]`): it stays one.
    """
    if depth > _MOST_NESTING:
        raise refused("a source", data)
    if isinstance(data, list):
        return [source(item, pseudonyms, depth + 1) for item in data]
    if isinstance(data, str):
        return pseudonyms.of("a", data)
    if type(data) is int and abs(data) > _PLAIN_INTEGER:
        return _PLAIN_INTEGER + int(pseudonyms.of("a", str(data))[1:])
    if not isinstance(data, Mapping) or "f" in data:
        return number_of(data)
    if "t" in data:
        return {"t": source(data["t"], pseudonyms, depth + 1)}
    if "enum" in data:
        name = data.get("name")
        if name not in _PROPERTIES:
            raise refused("the property", name)
        return {"enum": "TensorProperty", "name": name}
    return _source(data, pseudonyms, depth)


def _source(data: Mapping[str, Json], pseudonyms: Pseudonyms, depth: int) -> Json:
    kind = str(data.get("source"))
    if kind == "opaque":
        return {"source": "opaque", "name": pseudonyms.of("a", str(data.get("name")))}
    cls = rules.source_classes().get(kind)
    if cls is None:
        raise refused("the kind of source", kind)
    made: dict[str, Json] = {"source": kind}
    for key in data:
        if key in cls.__dataclass_fields__:
            held = data[key]
            is_input = key in _INPUTS and isinstance(held, str)
            made[key] = (
                pseudonyms.of("x", str(held)) if is_input else source(held, pseudonyms, depth + 1)
            )
    return made

"""Small records of torch (frozen dataclasses) as data, from closed tables of their classes.

Lives here: AOTAutograd's input and output descriptors, key paths of unbacked bindings, node
origins.  Not here: Sources (`sources`).  Called by `node_meta`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from torchreel.errors import UnsupportedError
from torchreel.formats import names
from torchreel.formats.allowed import members
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.autograd import aot

MAX_DEPTH = 50


def encode_record(value: object) -> Json:
    """Return a descriptor, a key or a list of them: `{"record": class name, field: value, ...}`."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode_record(item) for item in value]
    if type(value).__name__ in aot.record_classes() and dataclasses.is_dataclass(value):
        fields = {f.name: encode_record(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"record": type(value).__name__, **fields}
    return {"record": "opaque", "type": type(value).__name__}


def decode_record(data: Json, depth: int = 0) -> object:
    """Return the record described by `data`.

    Raises `UnsupportedError` for an unknown class or field.
    """
    if depth > MAX_DEPTH:
        raise UnsupportedError(f"a record nested deeper than {MAX_DEPTH} is refused")
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if isinstance(data, list):
        return [decode_record(item, depth + 1) for item in data]
    if not isinstance(data, Mapping) or "record" not in data:
        raise UnsupportedError(f"malformed record {data!r:.80}")
    cls = aot.record_classes().get(str(data["record"]))
    if cls is None:
        raise UnsupportedError(f"unknown record {data['record']!r}")
    fields = {k: decode_record(v, depth + 1) for k, v in data.items() if k != "record"}
    for name, check in _WRITTEN.get(cls.__name__, {}).items():
        check(fields.get(name))
    try:
        return cls(**fields)
    except (TypeError, ValueError, AssertionError) as error:
        raise UnsupportedError(f"{cls.__name__} does not take {sorted(fields)}: {error}") from error


def _check_number(value: object) -> None:
    if type(value) is not int:
        raise UnsupportedError(f"a key of an unbacked binding counts, found {value!r:.80}")


def _check_method(value: object) -> None:
    members.check_method(str(value))


def _check_attribute(value: object) -> None:
    members.check_attribute(str(value))


def _check_member(value: object) -> None:
    names.check_name(str(value), "member")


# Fields that Inductor writes into the program which binds unbacked symbols, as they stand.
_WRITTEN: dict[str, dict[str, Callable[[object], None]]] = {
    "SequenceKey": {"idx": _check_number},
    "DivideByKey": {"divisor": _check_number},
    "CallMethodKey": {"name": _check_method},
    "InnerTensorKey": {"inner_name": _check_member},
    "GetAttrKey": {"name": _check_attribute},
}


def decode_path(data: Json) -> tuple[object, ...]:
    """Return a key path (of `unbacked_bindings`)."""
    keys = decode_record(data)
    if not isinstance(keys, list):
        raise UnsupportedError(f"malformed key path {data!r:.80}")
    return tuple(keys)

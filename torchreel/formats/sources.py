"""Dynamo's Source trees as data.

Lives here: one codec for every Source class, by its fields.  Not here: which inputs have which
source (`checkpoints`, `shape_env`).  A field without a portable form makes the whole source an
opaque, named placeholder: two different ones stay different, which is all that AOTAutograd asks.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence

from torchreel.errors import UnsupportedError
from torchreel.formats import names
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.dynamo.contexts import Source

MAX_DEPTH = 100
MAX_CHAIN = 200
"""Sources of Sources in a table: for a name torch recurses about three times for each, and Python's
limit is 1000.  A module in a module takes two.
"""
_FIELDS: dict[type[Source], list[str]] = {}


Known = dict[int, Json]
"""Encoded Sources, by the ids of live ones: most share their bases."""


def encode_source(source: Source | None, known: Known | None = None) -> Json:
    """Return a Source as data: `{"source": class name, field: value, ...}`."""
    if source is None:
        return None
    try:
        return _encode(source, {} if known is None else known)
    except UnsupportedError as error:
        return {"source": "opaque", "name": _name(source), "reason": str(error)}


def _name(source: Source) -> str:
    try:
        name = source.name
    except NotImplementedError:  # the base class, which torch uses where there is no source
        return type(source).__name__
    return str(name() if callable(name) else name)


def _encode(value: object, known: Known) -> Json:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"f": value.hex()}
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__name__, "name": value.name}
    if isinstance(value, tuple):
        return {"t": [_encode(item, known) for item in value]}
    if isinstance(value, Source) and type(value).__name__ in rules.source_classes():
        found = known.get(id(value))
        if found is None:
            fields = {name: _encode(getattr(value, name), known) for name in _fields(type(value))}
            found = known[id(value)] = {"source": type(value).__name__, **fields}
        return found
    raise UnsupportedError(f"a source field of type {type(value).__name__} has no portable form")


def _fields(cls: type[Source]) -> list[str]:
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = [field.name for field in dataclasses.fields(cls) if field.init]
    return found


class SourceTable:
    """A table of Sources, each once.

    `rows` are as `encode_source` has them, but `{"at": row}` stands for a Source within a Source,
    and fields with their default values are left out.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Json]] = []
        self._places: dict[Source, int] = {}
        self._fields: dict[type[Source], tuple[tuple[str, object], ...]] = {}

    def add(self, source: Source) -> int:
        """Return the row of a Source."""
        found = self._places.get(source)
        if found is not None:
            return found
        cls = type(source)
        row: dict[str, Json] = {"source": cls.__name__}
        if cls not in self._fields:
            self._fields[cls] = _defaults(cls)
        for name, default in self._fields[cls]:
            value = getattr(source, name)
            if value is not default:
                row[name] = self._cell(value)
        self.rows.append(row)
        place = self._places[source] = len(self.rows) - 1
        return place

    def _cell(self, value: object) -> Json:
        if isinstance(value, Source):
            return {"at": self.add(value)}
        try:
            return _encode(value, {})
        except UnsupportedError as error:
            return {"opaque": str(error)}


def encode_named(named: Mapping[str, Source], known: Known) -> Json:
    """Return sources by name, as a table and the place of each in it; opaque ones stand for
    themselves.
    """
    table = SourceTable()
    at: dict[str, Json] = {}
    for name, source in named.items():
        encoded = encode_source(source, known)
        opaque = isinstance(encoded, Mapping) and encoded["source"] == "opaque"
        at[name] = encoded if opaque else table.add(source)
    return {"rows": list(table.rows), "at": at}


def decode_named(data: Json) -> dict[str, Source | None]:
    """Return sources by name, from the data of `encode_named` or a mapping to `encode_source`'s.

    None where no source was recorded.  Raises `UnsupportedError` for an unknown class or field, or
    too long a chain of Sources.
    """
    if not isinstance(data, Mapping):
        return {}
    rows, at = data.get("rows"), data.get("at")
    if not isinstance(rows, list) or not isinstance(at, Mapping):
        return {name: decode_source(source) for name, source in data.items()}
    found: list[Source] = []
    depths: list[int] = []
    for row in rows:  # each refers to rows before it
        if not isinstance(row, Mapping) or "source" not in row:
            raise UnsupportedError(f"row {len(found)} of a table of sources is malformed")
        source = _decode_source_object(row, 0, found)
        # Where a row has a number that is no place, it is read as a depth or as nothing.
        depths.append(
            1 + max((depths[n] for n in _places(row) if 0 <= n < len(depths)), default=-1)
        )
        if depths[-1] > MAX_CHAIN:
            raise UnsupportedError(
                f"row {len(found)} of a table of sources is nested deeper than {MAX_CHAIN}: that "
                "is refused, since torch would recurse further than Python goes"
            )
        found.append(source)
    return {
        name: _at(place, found) if isinstance(place, int) else decode_source(place)
        for name, place in at.items()
    }


def _places(cell: Json) -> Iterator[int]:
    """Yield the rows that a decoded cell refers to."""
    if isinstance(cell, Mapping):
        place = cell.get("at")
        if isinstance(place, int):
            yield place
        for item in cell.values():
            yield from _places(item)
    elif isinstance(cell, list):
        for item in cell:
            yield from _places(item)


def _at(place: Json, found: Sequence[Source]) -> Source:
    if not isinstance(place, int) or not 0 <= place < len(found):
        raise UnsupportedError(f"a table of sources has no row {place!r:.80} there")
    return found[place]


def _defaults(cls: type[Source]) -> tuple[tuple[str, object], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(cls) if field.init)


def expand_source(rows: Sequence[Json], place: int, depth: int = 0) -> Json:
    """Return the Source of a row of a `SourceTable`, in the form that `decode_source` reads."""
    row = rows[place] if 0 <= place < len(rows) else None
    if depth > MAX_DEPTH or not isinstance(row, Mapping):
        raise UnsupportedError(f"row {place} of a table of sources is malformed")
    return {name: _expand_cell(rows, cell, depth) for name, cell in row.items()}


def _expand_cell(rows: Sequence[Json], cell: Json, depth: int) -> Json:
    if isinstance(cell, Mapping) and isinstance(place := cell.get("at"), int):
        return expand_source(rows, place, depth + 1)
    return cell


def decode_source(data: Json, depth: int = 0) -> Source | None:
    """Return the Source described by `data`.

    Raises `UnsupportedError` for an unknown class or field.
    """
    if data is None:
        return None
    value = _decode(data, depth)
    if not isinstance(value, Source):
        raise UnsupportedError(f"a source is an object, found {data!r:.80}")
    return value


def _decode(data: Json, depth: int, rows: Sequence[Source] = ()) -> object:
    if depth > MAX_DEPTH:
        raise UnsupportedError(f"a source nested deeper than {MAX_DEPTH} is refused")
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if isinstance(data, Mapping):
        if "f" in data:
            return _decode_float(data["f"])
        if "enum" in data:
            return _decode_enum(data)
        if isinstance(items := data.get("t"), list):
            return tuple(_decode(item, depth + 1, rows) for item in items)
        if "source" in data:
            return _decode_source_object(data, depth, rows)
        if "at" in data:
            return _at(data["at"], rows)
    raise UnsupportedError(f"malformed source data {data!r:.80}")


def _decode_float(text: Json) -> float:
    try:
        return float.fromhex(str(text))
    except (ValueError, OverflowError):
        raise UnsupportedError(f"no float, in a source: {text!r:.80}") from None


def _decode_enum(data: Mapping[str, Json]) -> object:
    from torch._dynamo.source import TensorProperty

    name = str(data.get("name"))
    if data["enum"] != "TensorProperty" or name not in TensorProperty.__members__:
        found = f"{data['enum']!s:.80}[{name!r:.80}]"
        raise UnsupportedError(f"unknown member of an enumeration {found} in a source")
    return TensorProperty[name]


def _decode_source_object(
    data: Mapping[str, Json], depth: int, rows: Sequence[Source] = ()
) -> Source:
    name = str(data["source"])
    if name == "opaque":
        return rules.source_classes()["SyntheticLocalSource"](str(data.get("name")))  # type: ignore[call-arg]
    cls = rules.source_classes().get(name)
    if cls is None:
        raise UnsupportedError(f"unknown source class {name!r}")
    for key, value in data.items():
        if isinstance(value, str) and key != "index":  # an index is written with quotes
            names.check_comment(value)
    fields = {k: _decode(value, depth + 1, rows) for k, value in data.items() if k != "source"}
    # A mark of another torch that is not set says nothing.
    known = _fields(cls)
    fields = {k: value for k, value in fields.items() if k in known or value not in (None, False)}
    try:
        return cls(**fields)
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UnsupportedError(
            f"the source class {name!r} does not take {sorted(fields)}: {error}"
        ) from error

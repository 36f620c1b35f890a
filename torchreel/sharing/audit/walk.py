"""Everything in a store, as values with their places: rows, and blobs unpacked.

Lives here: reading, whatever the file says it is for. Nothing is executed: pickles are read opcode
by opcode. Not here: which values may leave (`rules`), free pages (`leftovers`).
"""

from __future__ import annotations

import pickletools
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.schema import CreateIndex

from torchreel.errors import DamagedStore
from torchreel.store import Store
from torchreel.store.blobs.packs import Part, unpack_parts
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.schema import JsonText, indexes_of_pushes, metadata

_RUN = re.compile(rb"[\x20-\x7e\n\t]{4,}")
_NUMBERS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"})
"""Opcodes of pickle whose argument is a number of the program's."""
_WORD, _COMMENT = re.compile(r"[^\W\d]\w*"), re.compile(r"--|/\*")
_MOST_LEAVES = 50_000_000
KEY = "<key>"
"""The last step of the place of a name of a member."""
LINE = "<line>"
"""The last step of the place of a line in a text that is no JSON."""


@dataclass(frozen=True)
class Leaf:
    """A value that is no container, and where it stands."""

    place: tuple[str, ...]
    """The table and column, or 'blob' and its use; then the keys that lead to it."""
    value: str | int | float | bool | None
    sizes: frozenset[int] = frozenset()
    """The sizes in its document: a whole number that is among them is one."""
    row: str = ""
    """The name of its row, in a table of names and values."""


def leaves(store: Store) -> Iterator[Leaf]:
    """Yield every value of a store.  Raises DamagedStore for an unreadable part."""
    with store.connect() as connection:
        tables = inspect(connection).get_table_names()
        for table in tables:
            yield Leaf(("schema", table), table)
            for column in inspect(connection).get_columns(table):
                yield Leaf(("schema", table), str(column["name"]))
        digests: list[str] = []
        for table in tables:
            if table not in ("blobs", "packs"):
                yield from _rows(connection, table)
        if "blobs" in tables:
            found = connection.execute(text("SELECT digest FROM blobs ORDER BY digest"))
            digests = [str(row[0]) for row in found]
        yield from _definitions(connection)
        uses = _uses(connection, tables)
    for digest in digests:
        yield Leaf(("blobs", "digest"), digest)
        yield from of_bytes(("blob", uses.get(digest, digest[:12])), store.read_blob(digest))
    if "packs" in tables:
        with store.connect() as connection:
            yield from _deleted(connection)


def _deleted(connection: Connection) -> Iterator[Leaf]:
    """Yield the values of deleted blobs.

    Their bytes stay in a pack as long as another blob of the pack does.
    """
    parts: dict[int, list[tuple[int, Part]]] = {}
    rows = connection.execute(
        text("SELECT coalesce(first, id), id, size, data, dictionary FROM packs ORDER BY id")
    )
    for first, number, size, data, dictionary in rows:
        parts.setdefault(first, []).append((number, Part(size, bytes(data), dictionary)))
    used: dict[int, list[tuple[int, int]]] = {}
    for number, start, size in connection.execute(
        text("SELECT pack, start, size FROM blobs WHERE pack IS NOT NULL")
    ):
        used.setdefault(number, []).append((start, start + size))
    for first, held in parts.items():
        data, begin = unpack_parts(f"of pack {first}", [part for _, part in held]), 0
        for number, part in held:
            at = 0
            for start, end in [*sorted(used.get(number, ())), (part.size, part.size)]:
                if start > at:
                    yield from of_bytes(
                        ("blob", f"deleted from pack {first}"), data[begin + at : begin + start]
                    )
                at = max(at, end)
            begin += part.size


def _definitions(connection: Connection) -> Iterator[Leaf]:
    """Yield schema entries that torchreel never writes: views, triggers, words, comments."""
    if connection.dialect.name != "sqlite":
        return
    for kind, name, sql in connection.execute(text("SELECT type, name, sql FROM sqlite_master")):
        own = kind in ("table", "index") and not _COMMENT.search(sql or "")
        if not own or not set(_WORD.findall(f"{name} {sql or ''}")) <= _words_of_definitions():
            yield Leaf(("schema", kind, LINE), f"{name}: {sql}")


@cache
def _words_of_definitions() -> frozenset[str]:
    """Return the words in the definitions of a new store."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder, "empty.db"), create=True) as store,
        store.writer() as writer,
    ):
        metadata.create_all(writer.connection)
        for index in indexes_of_pushes():
            writer.connection.execute(CreateIndex(index))
        rows = writer.connection.execute(text("SELECT name, sql FROM sqlite_master")).all()
    return frozenset(word for name, sql in rows for word in _WORD.findall(f"{name} {sql or ''}"))


def _rows(connection: Connection, table: str) -> Iterator[Leaf]:
    known = metadata.tables.get(table)
    quoted = connection.dialect.identifier_preparer.quote(table)
    result = connection.execute(text(f"SELECT * FROM {quoted}"))
    names = list(result.keys())
    for row in result:
        label = str(row[1]) if table == "environment" else ""
        for name, value in zip(names, row, strict=True):
            is_json = known is not None and name in known.c
            is_json = (
                is_json and isinstance(known.c[name].type, JsonText) if known is not None else False
            )
            yield from _cell((table, name), value, label, is_json=is_json)


def _cell(place: tuple[str, ...], value: object, row: str, *, is_json: bool) -> Iterator[Leaf]:
    if isinstance(value, (bytes, memoryview)):
        yield from of_bytes(place, bytes(value))
    elif isinstance(value, str) and is_json:
        try:
            document = parse_json(value)
        except ValueError as error:
            raise DamagedStore(
                f"{'.'.join(place)} holds {value!a:.60}, which is no JSON."
            ) from error
        yield from of_json(place, document)
    elif value is None or isinstance(value, (str, int, float)):
        yield Leaf(place, value, row=row)
    else:
        yield Leaf(place, str(value), row=row)


def _uses(connection: Connection, tables: list[str]) -> dict[str, str]:
    """Return the table and column that name each blob, by digest."""
    found: dict[str, str] = {}
    for table in tables:
        known = metadata.tables.get(table)
        for column in known.c if known is not None and table not in ("blobs", "packs") else ():
            if column.name in (
                "digest",
                "document",
                "text_digest",
                "payload",
                "traceback",
                "frame_source",
                "tensors",
            ):
                query = text(f"SELECT {column.name} FROM {table}")
                for (digest,) in connection.execute(query):
                    if isinstance(digest, str):
                        found.setdefault(digest, f"{table}.{column.name}")
    return found


def of_bytes(place: tuple[str, ...], data: bytes) -> Iterator[Leaf]:
    """Yield the values in a blob: a JSON document, a pickle, a text, or its printable parts.

    A blob of no known form also yields a value that says so, so that the audit reports it.
    """
    try:
        yield from of_json(place, parse_json(data))
        return
    except (ValueError, RecursionError):
        pass
    if data.startswith(b"\x80"):
        yield from _of_pickle(place, data)
        yield from _printable(place, data)
        return
    try:
        for line in data.decode("utf-8").splitlines():
            yield Leaf((*place, LINE), line)
    except UnicodeDecodeError:
        yield Leaf((*place, LINE), f"{len(data)} bytes of no known form")
        yield from _printable(place, data)


def of_json(place: tuple[str, ...], document: Json) -> Iterator[Leaf]:
    """Yield the values in a document, and the names of its members."""
    sizes = frozenset(_sizes(document))
    stack: list[tuple[tuple[str, ...], Json]] = [(place, document)]
    count = 0
    while stack:
        count += 1
        if count > _MOST_LEAVES:
            raise DamagedStore(f"{'.'.join(place)} holds more than {_MOST_LEAVES} values.")
        where, value = stack.pop()
        if isinstance(value, Mapping):
            for key, held in value.items():
                yield Leaf((*where, KEY), str(key), sizes)
                step = f"{key}:{value['op']}" if key == "target" and "op" in value else str(key)
                stack.append(((*where, step), held))
        elif value is None or isinstance(value, (str, int, float)):
            yield Leaf(where, value, sizes)
        else:
            stack.extend((where, item) for item in value)


def _sizes(document: Json) -> Iterator[int]:
    stack: list[tuple[bool, Json]] = [(False, document)]
    while stack:
        inside, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(key in ("size", "stride"), held) for key, held in value.items()]
        elif isinstance(value, (list, tuple)):
            stack += [(inside, item) for item in value]
        elif inside and type(value) is int:
            yield value


def _of_pickle(place: tuple[str, ...], data: bytes) -> Iterator[Leaf]:
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if isinstance(argument, (str, float)):
                yield Leaf((*place, "pickle"), argument)
            elif isinstance(argument, int) and opcode.name in _NUMBERS:
                yield Leaf((*place, "pickle", "value"), argument)
            elif isinstance(argument, (bytes, bytearray)):
                yield from _printable((*place, "pickle"), bytes(argument))
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
        return  # what is printable in it is looked at in any case


def _printable(place: tuple[str, ...], data: bytes) -> Iterator[Leaf]:
    for found in _RUN.finditer(data):
        for line in found[0].decode("ascii").splitlines():
            yield Leaf((*place, LINE), line)

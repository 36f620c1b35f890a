"""The rows of one recording, read whole, and checked as any reader checks them.

A row that a server would not take is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    PrimaryKeyConstraint,
    Row,
    Select,
    Table,
    Text,
    UniqueConstraint,
    select,
)

from torchreel.errors import DamagedStore
from torchreel.store import limits, schema
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import json_text

Values = dict[str, Any]
"""A row, with JSON as its text."""


class RecordingRows(NamedTuple):
    """A recording and all that belongs to it, by table; the ids are the source's."""

    recording: Values
    tables: Mapping[str, Sequence[Values]]
    configs: Mapping[int, Sequence[ConfigEntry]]

    @property
    def ids(self) -> Mapping[str, Collection[int]]:
        """The ids of the rows of each table that others refer to."""
        found: dict[str, Collection[int]] = {
            name: {row["id"] for row in rows}
            for name, rows in self.tables.items()
            if "id" in schema.metadata.tables[name].c
        }
        return {**found, "recordings": {self.recording["id"]}, "configs": self.configs.keys()}

    def texts(self) -> Iterator[str]:
        """Yield the texts of all rows, in which digests may stand."""
        yield from texts(schema.recordings, self.recording)
        for name, rows in self.tables.items():
            for row in rows:
                yield from texts(schema.metadata.tables[name], row)


def read(source: Store, row: Row[Any]) -> RecordingRows:
    """Read what a row of `recordings` stands for.

    Raises StoreError where a part can't be read, or refers to rows of another recording.
    """
    tables = {
        table.name: read_rows(source, select(table).where(owned(table, row.id)))
        for table in schema.OF_A_RECORDING
    }
    wanted = {found["config_id"] for found in tables["compiles"]} - {None}
    recording = _values(source.target, schema.recordings, row) | {"replay_of": None}
    found = RecordingRows(recording, tables, _configs(source, wanted))
    for table in schema.OF_A_RECORDING:
        check_references(source.target, table, tables[table.name], found.ids)
    return found


def check_references(
    target: str, table: Table, rows: Sequence[Values], ids: Mapping[str, Collection[int]]
) -> None:
    """Raise DamagedStore where rows refer to what is not there, by the ids of each table."""
    for column in table.c:
        for key in column.foreign_keys:
            known = ids[key.column.table.name]
            for row in rows:
                if row[column.name] is not None and row[column.name] not in known:
                    raise DamagedStore(
                        f"{target} has a row of {table.name} whose {column.name} is "
                        f"{row[column.name]}, which its recording does not have."
                    )


Layout = dict[str, list[int]]
"""The ids of the compiles, and of the checkpoints, of a recording, in order."""


def read_layout(store: Store, recording_id: int) -> Layout:
    """Read the ids of a recording's compiles and checkpoints, in order.

    In two copies of a recording, rows correspond by their position in this order.
    """
    found: Layout = {}
    for table in (schema.compiles, schema.checkpoints):
        query = select(table.c.id).where(owned(table, recording_id)).order_by(table.c.id)
        found[table.name] = [row.id for row in store.rows(query)]
    return found


def owned(table: Table, recording_id: int) -> ColumnElement[bool]:
    """Return the condition for rows that belong to a recording, directly or through others."""
    column, owner = owner_of(table)
    if owner is schema.recordings:
        return column == recording_id
    return column.in_(select(owner.c.id).where(owned(owner, recording_id)))


def owner_of(table: Table) -> tuple[ColumnElement[Any], Table]:
    """Return the foreign key by which a row of a table belongs to a row of another one.

    The second value is that other table.
    """
    keys = ((column, key) for column in table.c for key in column.foreign_keys)
    return next((column, key.column.table) for column, key in keys if not column.nullable)


def read_rows(source: Store, query: Select[Any]) -> list[Values]:
    """Read the rows of a table, in the order in which they were written."""
    (table,) = query.get_final_froms()
    assert isinstance(table, Table)
    if "id" in table.c:
        query = query.order_by(table.c.id)
    rows = [_values(source.target, table, row) for row in source.rows(query)]
    _check_unique(source.target, table, rows)
    return rows


def _check_unique(target: str, table: Table, rows: Sequence[Values]) -> None:
    """Refuse rows that share a key: a file need not have been made with ours."""
    keys = [c for c in table.constraints if isinstance(c, (PrimaryKeyConstraint, UniqueConstraint))]
    for names in ([column.name for column in key.columns] for key in keys):
        if len({tuple(row[name] for name in names) for row in rows}) < len(rows):
            raise DamagedStore(f"{target} has rows of {table.name} with one {', '.join(names)}.")


def _values(target: str, table: Table, row: Row[Any]) -> Values:
    values = {name: _plain(table, name, value) for name, value in row._mapping.items()}
    _check(target, table, values)
    return values


def _plain(table: Table, name: str, value: Any) -> Any:
    column = table.c[name]
    if isinstance(column.type, schema.JsonText) and not (value is None and column.nullable):
        return json_text(value)
    return value


def _check(target: str, table: Table, values: Values) -> None:
    """Refuse what is larger than anything that is recorded, or than an index takes."""
    texts = {name: len(value.encode()) for name, value in values.items() if _is_text(value)}
    for name in texts:
        if "\0" in values[name] and not isinstance(table.c[name].type, schema.SafeText):
            raise DamagedStore(f"{target} has a NUL in {table.name}.{name}, where no text has one.")
    for name, size in texts.items():
        if size > limits.PUSHED_TEXT:
            raise DamagedStore(
                f"{target} has {size} bytes in {table.name}.{name}, and no recorder writes more "
                f"than {limits.PUSHED_TEXT}."
            )
    indexed = sum(texts.get(column.name, 0) for column in table.primary_key)
    if indexed > limits.PUSHED_KEY:
        raise DamagedStore(
            f"{target} has a name of {indexed} bytes in {table.name}, and a server takes "
            f"{limits.PUSHED_KEY}."
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _configs(source: Store, wanted: set[int]) -> dict[int, Sequence[ConfigEntry]]:
    found: dict[int, Sequence[ConfigEntry]] = {}
    table = schema.config_entries
    known = {row.id for row in source.rows(select(schema.configs.c.id))}
    for number in sorted(wanted & known):
        rows = source.rows(select(table).where(table.c.config_id == number))
        for row in rows:
            _check(source.target, table, dict(row._mapping) | {"value": json_text(row.value)})
        found[number] = [ConfigEntry(row.module, row.key, row.value, row.portable) for row in rows]
    return found


def texts(table: Table, values: Values) -> Iterator[str]:
    """Yield the texts of a row, in which digests may stand."""
    for name, value in values.items():
        if isinstance(value, str) and isinstance(schema.stored_as(table.c[name].type), Text):
            yield value

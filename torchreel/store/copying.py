"""Copies one recording from a store into another, with all that belongs to it.

Called by `replay.processes.launch`: a confined child records into a store of its own, because it
may write to no other. What it wrote is data like any store's. Frames of the program are left out:
no replay records them, and they are code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, Select, Table, select

from torchreel.errors import StoreError, UnreadableSource
from torchreel.store import schema
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import json_text
from torchreel.store.writer import Writer

_COPIED = (
    *(table for table in schema.OF_A_RECORDING if table is not schema.frame_bundles),
    schema.failures,
)
"""In an order in which each comes after those that it refers to."""

_Ids = dict[str, dict[Any, Any]]
"""By table: the new id of each row that was copied, by its old one."""


def copy_recording(source: Store, recording_id: int, target: Store) -> int:
    """Copy a recording and its blobs; returns its id in the target.

    Raises UnreadableSource for a source that can't be read, and what the target raises.
    """
    with target.writer() as writer:
        (recording,) = _rows(
            source, select(schema.recordings).where(schema.recordings.c.id == recording_id)
        )
        new = writer.add("recordings", **_without_id(dict(recording._mapping)))
        ids: _Ids = {"recordings": {recording_id: new}, "configs": _configs(source, writer)}
        for table in _COPIED:
            _copy_rows(source, table, writer, ids)
        # In one order, or two that copy the same wait for each other.
        for row in _rows(source, select(schema.blobs.c.digest).order_by(schema.blobs.c.digest)):
            with reading():
                content = source.read_blob(row.digest)
            writer.blob(content)
    return new


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Tell errors of the source from those of the target."""
    try:
        yield
    except StoreError as error:
        raise UnreadableSource(str(error)) from error


def _rows(source: Store, query: Select[Any]) -> Sequence[Row[Any]]:
    with reading():
        return source.rows(query)


def _configs(source: Store, writer: Writer) -> dict[Any, Any]:
    """Copy the sets of config entries, each kept once in a store; return new ids by old ones."""
    found: dict[int, list[ConfigEntry]] = {
        row.id: [] for row in _rows(source, select(schema.configs.c.id))
    }
    for row in _rows(source, select(schema.config_entries)):
        if row.config_id in found:
            found[row.config_id].append(ConfigEntry(row.module, row.key, row.value, row.portable))
    return {id_: writer.config(entries) for id_, entries in found.items()}


def _copy_rows(source: Store, table: Table, writer: Writer, ids: _Ids) -> None:
    """Copy the rows of a table that belong to what was copied; their ids are new ones."""
    keys = {column.name: key.column.table.name for column in table.c for key in column.foreign_keys}
    owner = next(name for name in keys if not table.c[name].nullable)
    rows = [dict(row._mapping) for row in _rows(source, select(table))]
    mine = [row for row in rows if row[owner] in ids[keys[owner]]]
    if "id" not in table.c:
        writer.add_many(table.name, [_moved(row, table, keys, ids) for row in mine])
        return
    new = ids.setdefault(table.name, {})
    for row in mine:
        new[row["id"]] = writer.add(table.name, **_moved(_without_id(row), table, keys, ids))


def _without_id(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}


def _moved(
    row: Mapping[str, Any], table: Table, keys: Mapping[str, str], ids: _Ids
) -> dict[str, Any]:
    """Return a row with its references changed to the rows of the copy."""
    return {
        name: ids.get(keys[name], {}).get(value)
        if name in keys
        else json_text(value)
        if isinstance(table.c[name].type, schema.JsonText)
        and (value is not None or not table.c[name].nullable)
        else value
        for name, value in row.items()
    }

"""Writes what was read from one store into another.

Blobs go first, in transactions of their own: a push that ends half-way has sent them, and the next
one goes on from there.  Rows go in one transaction, which holds a lock that a sweep of unused blobs
waits for, and looks whether all blobs are there.  A role that may only insert rows, and read ids
and digests, is enough (`torchreel.store.servers.roles`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select

from torchreel.errors import DamagedStore, StoreError
from torchreel.store import schema
from torchreel.store.blobs import packing
from torchreel.store.blobs.packs import OpenPack
from torchreel.store.database import Store
from torchreel.store.sending.contents import SourceBlobs
from torchreel.store.sending.later import LaterRows, was_recorded
from torchreel.store.sending.rows import Layout, RecordingRows, Values, read_layout
from torchreel.store.servers.connections import no_sweep
from torchreel.store.writer import Writer

_PACK_BYTES = 1 << 20
"""Bytes of a pack before compression: whoever reads a blob fetches its pack over the network."""
_CHUNK = 500
_TRIES = 3
"""Times that blobs are sent for rows before which somebody deletes them."""

Ids = dict[str, dict[Any, Any]]
"""By table: the id of each row in the target, by its id in the source."""


def send_blobs(source: SourceBlobs, digests: Sequence[str], target: Store) -> int:
    """Send the blobs that the target lacks; return their size in bytes."""
    sent = 0
    for group in _packs(source, lacking(target, digests)):
        with target.writer() as writer:
            _put(writer, group)
        sent += sum(map(len, group.values()))
    return sent


def lacking(target: Store, digests: Sequence[str]) -> list[str]:
    """Return those of the digests under which the target has no blob."""
    found: set[str] = set()
    for start in range(0, len(digests), _CHUNK):
        chunk = digests[start : start + _CHUNK]
        query = select(schema.blobs.c.digest).where(schema.blobs.c.digest.in_(chunk))
        found.update(row.digest for row in target.rows(query))
    return [digest for digest in digests if digest not in found]


def _packs(source: SourceBlobs, digests: Sequence[str]) -> Iterator[dict[str, bytes]]:
    """Yield blobs in groups of the size of a pack, in the order in which they were written."""
    group: dict[str, bytes] = {}
    size = 0
    for digest in digests:
        data = source.read(digest)
        if group and size + len(data) > _PACK_BYTES:
            yield group
            group, size = {}, 0
        group[digest] = data
        size += len(data)
    if group:
        yield group


def _put(writer: Writer, group: Mapping[str, bytes]) -> None:
    """Write the blobs of a group, as one pack if there are several.

    In the order of their digests: two that send the same ones wait for one another, and never
    each for the other.
    """
    if len(group) == 1:
        ((digest, data),) = group.items()
        codec, packed = packing.pack(data)
        writer.put("blobs", digest=digest, codec=codec, size=len(data), data=packed)
        return
    part = OpenPack().add(group.values())
    pack = writer.add("packs", size=part.size, data=part.data, dictionary=part.dictionary)
    start, rows = 0, []
    for digest, data in group.items():
        place = {"digest": digest, "codec": packing.PACKED, "size": len(data), "data": b""}
        rows.append({**place, "pack": pack, "start": start})
        start += len(data)
    if not writer.put_many("blobs", sorted(rows, key=lambda row: str(row["digest"]))):
        writer.connection.rollback()  # somebody was faster: nothing would name the pack


def send_recording(
    rows: RecordingRows,
    later: LaterRows,
    identity: str,
    source: SourceBlobs,
    named: Sequence[str],
    target: Store,
) -> int | None:
    """Write a recording; return its number in the target, or None where somebody was faster.

    `named` are the blobs that it leads to.
    """
    for _ in range(_TRIES):
        send_blobs(source, named, target)
        with target.writer() as writer:
            no_sweep(writer.connection)
            number = writer.add("recordings", **_without(rows.recording, "id"))
            if not _claim(writer, identity, "recording", number, number):
                writer.connection.rollback()
                return None
            if _has_all(writer, named):
                ids = _write(writer, rows, number)
                _write_later(writer, later, number, ids)
                return number
            writer.connection.rollback()
    raise _loses_blobs(target)


def send_later(
    identity: str,
    later: LaterRows,
    layout: Layout,
    source: SourceBlobs,
    named: Sequence[str],
    target: Store,
) -> int:
    """Write the rows that came to a recording since it was pushed; return their number.

    0 if the recording was deleted in the target.  Raises DamagedStore where a part of it was, there
    or here: what belongs to what can't be told any more.
    """
    number = row_of(target, identity)
    if number is None:
        return 0
    there = read_layout(target, number)
    if any(len(there[name]) != len(layout[name]) for name in layout):
        raise DamagedStore(
            "a part of it was deleted since it was pushed, there or here, so nothing that was "
            "found later can be added."
        )
    ids: Ids = {name: dict(zip(layout[name], there[name], strict=True)) for name in layout}
    for _ in range(_TRIES):
        send_blobs(source, named, target)
        with target.writer() as writer:
            no_sweep(writer.connection)
            if _has_all(writer, named):
                return _write_later(writer, later, number, ids)
            writer.connection.rollback()
    raise _loses_blobs(target)


def _loses_blobs(target: Store) -> StoreError:
    return StoreError(f"{target.target} loses blobs while they are sent: push again.")


def row_of(target: Store, identity: str) -> int | None:
    """Return the row of a thing that was pushed; None where it, or its recording, is gone."""
    at = schema.origins.c
    query = select(at.row_id).where(at.digest == identity, at.recording_id.is_not(None))
    return next((row.row_id for row in target.rows(query)), None)


def _claim(writer: Writer, identity: str, kind: str, recording: int, row: int) -> bool:
    """Add an identity to the target; return False if it has it, perhaps from a push just now."""
    columns = {"digest": identity, "kind": kind, "recording_id": recording, "row_id": row}
    return writer.put("origins", **columns, pushed_ns=time.time_ns())


def _has_all(writer: Writer, digests: Sequence[str]) -> bool:
    count = 0
    for start in range(0, len(digests), _CHUNK):
        chunk = digests[start : start + _CHUNK]
        query = select(schema.blobs.c.digest).where(schema.blobs.c.digest.in_(chunk))
        count += len(writer.connection.execute(query).all())
    return count == len(digests)


def _write(writer: Writer, rows: RecordingRows, number: int) -> Ids:
    configs = {
        id_: writer.config(entries)
        for id_, entries in sorted(rows.configs.items(), key=lambda item: str(item[1]))
    }
    ids: Ids = {"recordings": {rows.recording["id"]: number}, "configs": configs}
    for table in schema.OF_A_RECORDING:
        _add_rows(writer, table.name, rows.tables[table.name], ids)
    return ids


def _write_later(writer: Writer, later: LaterRows, recording: int, ids: Ids) -> int:
    """Write failures, cases, reductions and findings; return the number of new ones."""
    count = 0
    kinds = {kind.digest: kind.document for kind in later.kinds.values()}
    for digest in sorted(filter(None, kinds)):  # in one order: see `_put`
        writer.put("kinds", digest=digest, document=kinds[digest])
    for identity, row in later.failures:
        place = {name: ids[f"{name}s"].get(row[f"{name}_id"]) for name in ("compile", "checkpoint")}
        moved = {**row, "recording_id": recording, **{f"{k}_id": v for k, v in place.items()}}
        columns = ("recording_id", "compile_id", "signature_digest")
        there = [] if was_recorded(row) else _like(writer, "failures", moved, columns)
        number = _add_once(writer, identity, "failure", recording, moved, there)
        if number is not None:
            count += 1
            if (kind := later.kinds.get(row["id"])) is not None:
                writer.add_many("failure_kinds", [kind.row(number, recording)])
    owners = {id_: _failure(writer, identity) for id_, identity in later.owners.items()}
    for row in later.cases:
        writer.put("cases", **{**row, "failure_id": owners.get(row["failure_id"])})
    for identity, row in later.reductions:
        moved = {**row, "failure_id": owners.get(row["failure_id"])}
        there = _like(writer, "reductions", moved, ("failure_id", "started_ns", "start_case"))
        number = _add_once(writer, identity, "reduction", recording, moved, there)
        if number is not None:
            count += 1
            mine = [found for found in later.by_catch if found["reduction_id"] == row["id"]]
            writer.add_many(
                "by_catch", [{**_without(found, "id"), "reduction_id": number} for found in mine]
            )
    for identity, row in later.findings:
        there = _like(writer, "findings", row, ("kind", "case_digest", "time_ns"))
        count += _add_once(writer, identity, "finding", recording, row, there) is not None
    return count


def _like(writer: Writer, table: str, row: Values, columns: Sequence[str]) -> list[int]:
    """Return the rows of the target that have the same values in these columns.

    These are rows that somebody found in the target itself. A role that may only push can't read
    them, and gets none.
    """
    if writer.connection.dialect.name == "postgresql":
        allowed = select(func.has_table_privilege(table, "SELECT"))
        if not writer.connection.execute(allowed).scalar():
            return []
    at = schema.metadata.tables[table].c
    query = select(at.id).where(*(at[name].is_not_distinct_from(row[name]) for name in columns))
    return [int(number) for number in writer.connection.execute(query.order_by(at.id)).scalars()]


def _add_once(
    writer: Writer, identity: str, kind: str, recording: int, row: Values, there: Sequence[int]
) -> int | None:
    """Add a row to the table of its kind, and return its id; None if the target has it already.

    If `there` has rows, the first of these is the same thing, and gets the identity.
    """
    if there:
        _claim(writer, identity, kind, recording, there[0])
        return None
    with writer.connection.begin_nested() as savepoint:
        number = writer.add(f"{kind}s", **_without(row, "id"))
        if _claim(writer, identity, kind, recording, number):
            return number
        savepoint.rollback()
    return None


def _failure(writer: Writer, identity: str) -> int | None:
    """Return the row of a failure that was pushed."""
    at = schema.origins.c
    found = writer.connection.execute(select(at.row_id).where(at.digest == identity)).first()
    return None if found is None else int(found[0])


def _add_rows(writer: Writer, table_name: str, rows: Sequence[Values], ids: Ids) -> None:
    """Write rows with references to the target's rows; note their new ids in `ids`."""
    table = schema.metadata.tables[table_name]
    keys = {column.name: key.column.table.name for column in table.c for key in column.foreign_keys}
    moved = [
        {
            name: ids.get(keys[name], {}).get(value) if name in keys else value
            for name, value in _without(row, "id").items()
        }
        for row in rows
    ]
    if table_name not in _REFERRED:
        writer.add_many(table_name, moved)
        return
    ids[table_name] = {}
    if moved:
        statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
        new = writer.connection.execute(statement, moved).scalars().all()
        ids[table_name] = dict(zip((row["id"] for row in rows), new, strict=True))


_REFERRED = frozenset(
    key.column.table.name
    for table in schema.metadata.tables.values()
    for column in table.c
    for key in column.foreign_keys
)
"""Tables whose rows others refer to by their ids."""


def _without(row: Mapping[str, Any], name: str) -> Values:
    return {key: value for key, value in row.items() if key != name}

"""`audit`: whatever is put anywhere into a clean file is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Text
from sqlalchemy.types import TypeDecorator

from torchreel.errors import StoreError
from torchreel.sharing.audit import rules
from torchreel.sharing.audit.audit import audit
from torchreel.sharing.audit.finding_kinds import kind_of
from torchreel.sharing.audit.walk import KEY, LINE, Leaf, of_json
from torchreel.sharing.share import Shared
from torchreel.store import Store, schema
from torchreel.store.documents.jsontypes import Json

CANARY = "zqvkwjxb"


@pytest.fixture
def bundle(shared: Shared, tmp_path: Path) -> Path:
    path = tmp_path / "copy.db"
    shutil.copyfile(shared.bundle, path)
    return path


def _columns() -> Iterator[tuple[str, str]]:
    for table in schema.metadata.sorted_tables:
        for column in table.c:
            kind = (
                column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
            )
            if isinstance(kind, Text) and table.name not in ("blobs", "packs"):
                yield table.name, column.name


def test_a_word_in_any_column_is_found(shared: Shared, tmp_path: Path) -> None:
    missed, tried = [], 0
    for number, (table, column) in enumerate(_columns()):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(shared.bundle, path)
        if not _planted(path, table, column):
            continue
        tried += 1
        try:
            found = {one.text for one in audit(path).findings}
        except StoreError:  # a digest that names no blob, a document that is none: no clean file
            continue
        if CANARY not in found:
            missed.append(f"{table}.{column}")
    assert tried > 25
    assert missed == []


def _planted(path: Path, table: str, column: str) -> bool:
    """Put the canary into a column; False where there is no row."""
    is_json = isinstance(schema.metadata.tables[table].c[column].type, schema.JsonText)
    value = json.dumps([CANARY]) if is_json else CANARY
    with closing(sqlite3.connect(path)) as database:
        held = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if table not in held:
            return False
        row = database.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (value,))
        database.commit()
        return row.rowcount > 0


def test_a_word_at_any_place_of_the_case_is_found(shared: Shared) -> None:
    document = _case(shared.bundle)
    tried = 0
    for changed in _changed(document):
        tried += 1
        found = list(of_json(("blob", "cases.document"), changed))
        refused = [leaf.value for leaf in found if not rules.allows(leaf, frozenset())]
        assert CANARY in refused, changed
    assert tried > 200


def test_the_case_as_it_is_holds_nothing(shared: Shared) -> None:
    leaves = list(of_json(("blob", "cases.document"), _case(shared.bundle)))
    assert len(leaves) > 200
    assert [leaf for leaf in leaves if not rules.allows(leaf, frozenset())] == []


@pytest.mark.parametrize("number", [0.73058123, 918273645])
def test_a_number_that_tells_something_is_found(shared: Shared, number: float) -> None:
    leaf: Json = {"f": number.hex()} if isinstance(number, float) else number
    document: Json = {"nodes": [{"op": "call_function", "args": [{"n": "x1"}, leaf]}]}
    found = list(of_json(("blob", "graphs.digest"), document))
    assert len([leaf for leaf in found if not rules.allows(leaf, frozenset())]) == 1
    declared = frozenset({repr(number)})
    assert [leaf for leaf in found if not rules.allows(leaf, declared)] == []


def _case(path: Path) -> Json:
    from sqlalchemy import select

    with Store.open(path) as store:
        (row,) = store.rows(select(schema.cases.c.document))
        found: Json = json.loads(store.read_blob(row.document))
        return found


def _changed(value: Json) -> Iterator[Json]:
    """Yield the document with the canary instead of each text, and of each key, in turn."""
    if isinstance(value, str):
        yield CANARY
    elif isinstance(value, list):
        for at, item in enumerate(value):
            for changed in _changed(item):
                yield [*value[:at], changed, *value[at + 1 :]]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {**{k: v for k, v in value.items() if k != key}, CANARY: item}
            for changed in _changed(item):
                yield {**value, key: changed}


@pytest.mark.parametrize("compressed", [False, True])
def test_what_was_deleted_is_found(bundle: Path, compressed: bool) -> None:
    """A deleted row is in the file until its place is needed."""
    text = f"the {CANARY} of the company " * 400
    with Store.open(bundle, write=True) as store:
        with store.writer() as writer:
            digest = writer.blob(text.encode())
        if not compressed:
            with store.writer() as writer:
                writer.add("packs", size=1, data=text.encode())
    with closing(sqlite3.connect(bundle)) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
        database.execute("DELETE FROM packs")
        database.commit()
    found = [one for one in audit(bundle).findings if CANARY in one.text]
    assert found
    assert {one.kind for one in found} == {"left over"}


def test_a_table_and_a_trigger_of_a_stranger_are_found(bundle: Path) -> None:
    with closing(sqlite3.connect(bundle)) as database:
        database.execute(f"CREATE TABLE {CANARY} (x TEXT)")
        database.execute(f"CREATE TABLE other (y{CANARY} TEXT)")
        database.commit()
    found = {one.text for one in audit(bundle).findings}
    assert {CANARY, f"y{CANARY}"} <= found


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "changed"])
def test_a_file_that_can_not_be_read_is_not_called_clean(bundle: Path, damage: str) -> None:
    data = bytearray(bundle.read_bytes())
    if damage == "empty":
        data = bytearray()
    elif damage == "text":
        data = bytearray(b"no store at all")
    elif damage == "cut":
        data = data[: len(data) // 2]
    else:
        data[4096:40960] = b"\x55" * (40960 - 4096)
    bundle.write_bytes(data)
    with pytest.raises(StoreError):
        audit(bundle)


@pytest.mark.parametrize(
    "piece", ["ab", "a(", "a/", "a.", "f(x", "~/", "1.", "a =", "s0+", "op:a."]
)
def test_a_long_text_takes_no_longer_than_it_is_long(piece: str) -> None:
    """A name of 16 MB in a damaged store took hours: the pattern of a path began at each letter."""
    text = (piece * 400_000)[:400_000]
    began = time.process_time()
    for place in (("failures", "message"), ("blob", "x", LINE), ("blob", "nodes", KEY)):
        leaf = Leaf(place, text)
        kind_of(leaf)
        rules.allows(leaf, frozenset())
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("/srv/me/train.py", "path"), ("see data/x1/y", "path"), ("~/x", "path"),
        ("y = f(g(x))", "source text"), ("total = 3", "source text"), ("a name", "text"),
        ("model.layer", "name"),
    ],
)  # fmt: skip
def test_the_kind_of_a_finding(text: str, kind: str) -> None:
    assert kind_of(Leaf(("blob", "x", LINE), text)) == kind

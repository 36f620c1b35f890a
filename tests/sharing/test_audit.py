"""`audit`: whatever is put anywhere into a clean file is found."""

from __future__ import annotations

import contextlib
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
from torchreel.sharing.audit.leftovers import leftovers
from torchreel.sharing.audit.walk import KEY, LINE, Leaf, of_bytes, of_json
from torchreel.sharing.share import Shared
from torchreel.store import Store, schema
from torchreel.store.blobs.packing import PACKED
from torchreel.store.blobs.packs import OpenPack
from torchreel.store.documents.jsontypes import Json, digest_of

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
    "piece", ["ab", "a(", "a/", "a.", "f(x", "~/", "1.", "a =", "s0+", "op:a.", "( ", ", ", "s0 ,"]
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


@pytest.mark.parametrize(
    "text",
    [
        "Иванов Пётр", "密码 山田太郎", "10.20.30.40", "10.20.30.40:29500", "4111 1111 1111 1111",
        "+49 170 1234567", "4111111111111111",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [("events", "data"), ("failures", "message"), ("blob", "x", "args"), ("blob", "x", KEY)],
)
def test_what_has_no_word_is_not_allowed_for_that(place: tuple[str, ...], text: str) -> None:
    assert not rules.allows(Leaf(place, text), frozenset())


def test_a_parameter_of_an_expression_may_leave() -> None:
    for text in ("s0", "Add(s0, 1)", "Max(1, Mul(4, s0))", "Mod(s0, -2)"):
        assert rules.allows(Leaf(("blob", "x", "args"), text), frozenset()), text


@pytest.mark.parametrize(
    "statement",
    [
        f'CREATE INDEX "{CANARY}" ON recordings(run)',
        f"CREATE TABLE stages2 (digest TEXT /* {CANARY} */)",
        f"CREATE TABLE stages2 ({CANARY} TEXT)",
        "CREATE INDEX run ON recordings(run) -- 4111 1111 1111 1111",
    ],
)
def test_a_definition_that_is_none_of_ours_is_found(bundle: Path, statement: str) -> None:
    with closing(sqlite3.connect(bundle)) as database:
        database.execute(statement.replace(" -- ", " /* ") + (" */" if " -- " in statement else ""))
        database.commit()
    with contextlib.suppress(StoreError):  # it may be refused as well
        assert not audit(bundle).is_clean


@pytest.mark.parametrize(
    "data",
    ["alice hunter2".encode("utf-16"), "пароль".encode("cp1251"), b"\xff\x00abc\x00pin\x00"],
)
def test_bytes_of_no_known_form_are_found(data: bytes) -> None:
    assert [leaf for leaf in of_bytes(("blob", "x"), data) if not rules.allows(leaf, frozenset())]


def test_what_is_left_in_a_pack_is_found(tmp_path: Path) -> None:
    """A part of a pack stays as long as one blob in it does."""
    path = tmp_path / "run.db"
    part = OpenPack().add([b"{}", CANARY.encode() * 9])
    digests = [digest_of(b"{}"), digest_of(CANARY.encode() * 9)]
    with Store.open(path, create=True) as store, store.writer() as w:
        number = w.add("packs", size=part.size, data=part.data, dictionary=part.dictionary)
        for digest, start, size in zip(digests, (0, 2), (2, 72), strict=True):
            w.put(
                "blobs", digest=digest, codec=PACKED, size=size, data=b"", pack=number, start=start
            )
    assert any(CANARY in one.text for one in audit(path).findings)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM blobs WHERE start = 2")
        database.execute("VACUUM")
    for target in (path, f"sqlite:///{path}"):
        assert any(CANARY in one.text for one in audit(target).findings)


@pytest.mark.parametrize("secret", ["Секретныйпароль", CANARY, "4111 1111 1111 1111 "])
@pytest.mark.parametrize("url", [False, True])
def test_what_is_left_at_the_end_of_a_long_value_is_found(
    tmp_path: Path, secret: str, url: bool
) -> None:
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA secure_delete = 0")
        database.execute("CREATE TABLE t (x TEXT)")
        database.execute("INSERT INTO t VALUES (?)", (secret * (90_000 // len(secret)),))
        database.execute("DELETE FROM t")
        # The page that was used last is taken first; what the new value does not cover stays.
        database.execute("INSERT INTO t VALUES (?)", ("torch" * 5000,))
        database.execute("UPDATE t SET x = ?", ("torch" * 4500,))
    data = path.read_bytes()
    target = f"sqlite:///{path}" if url else path
    texts = {text for _, text in leftovers(path)}
    assert secret.encode() in data
    assert any(secret.strip() in text for text in texts)
    with contextlib.suppress(StoreError):  # of the table that no store has
        assert any(one.kind == "left over" for one in audit(target).findings)


def test_bytes_behind_the_last_page_are_found(bundle: Path) -> None:
    with bundle.open("ab") as file:
        file.write(f"{CANARY} is behind".encode())
    assert any(CANARY in one.text for one in audit(bundle).findings)

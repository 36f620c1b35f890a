"""Roles on a real server: each may do what it is for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.exc import ProgrammingError

from tests.server import Server
from tests.store.pushing import FAILED, content, counts, fill
from tests.store.rows import add_failure
from torchreel.analysis.triage.failure_kinds import kinds_of
from torchreel.errors import DamagedStore, LockedStore
from torchreel.store import Store
from torchreel.store.database import APPENDING, DELETING
from torchreel.store.deletion.blobs import sweep
from torchreel.store.migrations import upgrade
from torchreel.store.schema import blobs, metadata
from torchreel.store.sending.blobs_asked_again import drop_wrong
from torchreel.store.sending.push import PushReport, push_path
from torchreel.store.servers.roles import APPEND, DELETE, READ, grant, statements

Url = Callable[[str], str]


@pytest.fixture
def url_of(server: Server, url: str) -> Url:
    """The URL of a store with roles, for a user that has one of them, or is its owner."""
    with Store.open(url, write=True) as store, store.writer() as w:
        grant(w.connection)
        grant(w.connection)  # which changes nothing
    for role in (APPEND, READ, DELETE):
        server.execute(
            f"DO $$ BEGIN CREATE ROLE {role}_user LOGIN IN ROLE {role}; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    database = url.rpartition("/")[2]
    return lambda role: server.url(database, user=f"{role}_user") if role else url


def test_who_may_append_can_push_and_nothing_else(url_of: Url, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", range(2))
    with Store.open(url_of(APPEND), write=True, rights=APPENDING) as central:
        assert sorted(push_path(str(path), central).sent) == [1, 2]
        _add_reduction(path, _add_failure(path))
        assert push_path(str(path), central).added == 3
        assert push_path(str(path), central).known == 2
    _check_denied(url_of(APPEND), [*_READING, *_CHANGING, *_DELETING, *_OWNING, *_FORGING])
    with pytest.raises(LockedStore, match="UPDATE"):
        Store.open(url_of(APPEND), write=True)
    with Store.open(path) as source, Store.open(url_of("")) as central:
        assert content(central) == content(source)


def test_who_may_read_can_read_all_and_change_nothing(url_of: Url, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", range(2))
    with Store.open(url_of(""), write=True) as central:
        push_path(str(path), central)
    with Store.open(path) as source, Store.open(url_of(READ)) as central:
        assert content(central) == content(source)
    for rights in (APPENDING, DELETING):
        with pytest.raises(LockedStore):
            Store.open(url_of(READ), write=True, rights=rights)
    _check_denied(url_of(READ), [*_CHANGING, *_DELETING, *_ADDING, *_OWNING])


def test_who_may_delete_can_delete_and_sweep_and_add_nothing(url_of: Url, tmp_path: Path) -> None:
    path = fill(tmp_path / "run.db", range(2))
    with Store.open(url_of(""), write=True) as central:
        push_path(str(path), central)
    with Store.open(url_of(DELETE), write=True, rights=DELETING) as central:
        with central.writer() as w:
            w.delete("recordings", 1)
        assert sweep(central) > 0
        assert counts(central)["recordings"] == 1
        assert list(content(central)) == ["run 1"]
    _check_denied(url_of(DELETE), [*_CHANGING, *_ADDING, *_OWNING])
    with Store.open(url_of(APPEND), write=True, rights=APPENDING) as central:
        assert push_path(str(path), central).known == 2  # what was deleted stays deleted


def test_every_table_and_the_version_is_covered(url_of: Url) -> None:
    for name in metadata.tables:
        with Store.open(url_of(READ)) as central, central.connect() as connection:
            connection.execute(text(f'SELECT * FROM "{name}"')).all()


def test_a_blob_under_a_wrong_digest_is_mended(url_of: Url, tmp_path: Path) -> None:
    """A client that may append takes the digests of what others will send, before they do."""
    path = fill(tmp_path / "run.db", range(2))
    with Store.open(path) as source:
        right = content(source)
        digests = [row.digest for row in source.rows(select(blobs.c.digest))]
    engine = create_engine(url_of(APPEND))
    with engine.begin() as connection:
        row = "VALUES (:digest, 'raw', 5, 'wrong')"
        for digest in digests[::2]:
            statement = text(f"INSERT INTO blobs (digest, codec, size, data) {row}")
            connection.execute(statement, {"digest": digest})
    engine.dispose()

    def push() -> PushReport:
        with Store.open(url_of(APPEND), write=True, rights=APPENDING) as central:
            return push_path(str(path), central)

    assert sorted(push().sent) == [1, 2]
    with Store.open(url_of("")) as central, pytest.raises(DamagedStore):
        content(central)
    assert push().mended == 0, "nobody has looked yet"
    with Store.open(url_of(""), write=True) as central:
        assert sorted(drop_wrong(central)) == sorted(digests[::2])
        assert drop_wrong(central) == []
    report = push()
    assert (report.mended, report.sent, report.known) == (len(digests[::2]), {}, 2)
    assert push().mended == 0
    with Store.open(url_of("")) as central:
        assert content(central) == right


def test_roles_keep_their_rights_through_a_migration(
    server: Server, url_of: Url, tmp_path: Path
) -> None:
    """An operator who upgrades runs prepare, and need not make the roles again."""
    path = fill(tmp_path / "run.db", range(1))
    empty = server.new_database()
    engine = create_engine(empty)
    with engine.begin() as connection:
        upgrade(connection, "0009")
        for statement in statements():  # as they were then: less the columns of later revisions
            with suppress(ProgrammingError), connection.begin_nested():
                connection.execute(text(statement))
        connection.execute(text(f"REVOKE INSERT (generation) ON compiles FROM {APPEND}"))
    engine.dispose()
    Store.open(empty, create=True).close()
    user = server.url(empty.rpartition("/")[2], user=f"{APPEND}_user")
    with Store.open(user, write=True, rights=APPENDING) as central:
        assert sorted(push_path(str(path), central, kinds_of=kinds_of).sent) == [1]
    with Store.open(empty) as central:
        assert counts(central)["failure_kinds"] == counts(central)["failures"]


def test_what_is_asked_for_is_no_way_to_others_blobs(url_of: Url, tmp_path: Path) -> None:
    """A note asks those alone who have the bytes, and a wrong one changes nothing."""
    path = fill(tmp_path / "run.db", range(1))
    engine = create_engine(url_of(APPEND))
    with engine.begin() as connection:
        row = "VALUES (:digest, 'wanted', NULL, 0, 0)"
        for digest in ("f" * 64, "no digest"):
            names = "(digest, kind, recording_id, row_id, pushed_ns)"
            connection.execute(text(f"INSERT INTO origins {names} {row}"), {"digest": digest})
    engine.dispose()
    with Store.open(url_of(APPEND), write=True, rights=APPENDING) as central:
        report = push_path(str(path), central)
    assert (sorted(report.sent), report.mended, report.refused) == ([1], 0, [])


_READING = ["SELECT argv FROM recordings", "SELECT data FROM blobs", "SELECT * FROM environment"]
_CHANGING = ["UPDATE recordings SET status = 'x'", "UPDATE blobs SET data = ''"]
_DELETING = ["DELETE FROM recordings", "DELETE FROM blobs", "TRUNCATE packs"]
_ADDING = ["INSERT INTO configs (digest) VALUES ('x')"]
_FORGING = [
    "INSERT INTO configs (id, digest) VALUES (77, 'x')",
    "INSERT INTO recordings (id) VALUES (77)",
    "INSERT INTO verdicts (case_digest) VALUES ('x')",
    "INSERT INTO replays (entry) VALUES ('graph')",
]
"""To take the number of another recording, or to judge a case that somebody reduces."""
_OWNING = ["CREATE TABLE more (x int)", "ALTER TABLE recordings ADD COLUMN more int"]


def _check_denied(url: str, statements: Sequence[str]) -> None:
    engine = create_engine(url)
    for statement in statements:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            _execute(engine, statement)
    engine.dispose()


def _execute(engine: Engine, statement: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(statement))


def _add_failure(path: Path) -> int:
    with Store.open(path, write=True) as store, store.writer() as w:
        return add_failure(w, 1, 1, replace(FAILED, message="found later"), time_ns=50)


def _add_reduction(path: Path, failure: int) -> None:
    """Add one row to each table that a push comes to after the recording."""
    with Store.open(path, write=True) as store, store.writer() as w:
        w.put("cases", digest="c" * 64, failure_id=failure, call_nodes=2, document=w.blob(b"case"))
        row = {"start_case": "c" * 64, "best_case": "c" * 64, "status": "fixpoint", "seconds": 1.5}
        effort = {"oracle_runs": 3, "cache_hits": 0, "started_ns": 5}
        number = w.add("reductions", failure_id=failure, **row, **effort)
        caught = {"signature": FAILED.to_json(), "signature_digest": FAILED.digest}
        w.add("by_catch", reduction_id=number, case_digest="c" * 64, **caught)
        finding = {"signature_digest": "s", "environment_digest": "e", "document": {"a": 1}}
        w.add("findings", kind="bisection", case_digest="c" * 64, time_ns=1, **finding)

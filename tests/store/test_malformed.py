"""A hostile client: what is malformed is refused with a reason, leaves nothing, and harms nothing.

A sample of `make malformed`, which does the same ten thousand times.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tests.server import Server
from tests.store import malformed
from tests.store.pushing import counts, fill
from torchreel.store import Store
from torchreel.store.sending.push import push_path
from torchreel.store.servers.roles import APPEND, grant


def test_what_they_are_made_from_is_sent(tmp_path: Path, url: str) -> None:
    base = malformed.make_base(tmp_path)
    with Store.open(url, write=True) as central:
        assert sorted(push_path(str(base), central).sent) == [malformed.BAD, malformed.GOOD]


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers", [range(50), pytest.param(range(50, 200), marks=pytest.mark.slow)]
)
def test_malformed_stores_are_refused(tmp_path: Path, url: str, numbers: range) -> None:
    base = malformed.make_base(tmp_path)
    kinds: Counter[str] = Counter()
    with Store.open(url, write=True) as central:
        push_path(str(base), central)
        before = counts(central)
        for number in numbers:
            what, path = malformed.make(base, number)
            assert malformed.pushed(path, central), (number, what)
            path.unlink()
            kinds[what] += 1
        assert counts(central) == before
        assert len(kinds) > 15
        more = fill(tmp_path / "more.db", range(7, 8))
        assert len(push_path(str(more), central).sent) == 1


def test_statements_of_who_may_append_are_refused(url: str, server: Server, tmp_path: Path) -> None:
    with Store.open(url, write=True) as central:
        with central.writer() as w:
            grant(w.connection)
        push_path(str(malformed.make_base(tmp_path)), central)
        server.execute(
            "DO $$ BEGIN CREATE ROLE hostile LOGIN IN ROLE torchreel_append; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
        before = counts(central)
        engine = create_engine(server.url(url.rpartition("/")[2], user="hostile"))
        for number in range(100):
            statement = malformed.statement(number)
            assert malformed.is_refused(engine, statement), statement
        engine.dispose()
        assert counts(central) == before
    assert APPEND == "torchreel_append"

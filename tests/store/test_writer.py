"""The writer: one transaction, and rows that read back as they went in."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import inspect, select, text

from tests.store.rows import add_compile, add_event, add_failure, add_graph, add_recording
from torchreel.errors import DamagedStore, UsageError
from torchreel.store import ConfigEntry, Signature, Store, queries
from torchreel.store.schema import events, metadata, verdicts


def test_ids_are_those_of_the_rows(store: Store) -> None:
    with store.writer() as w:
        ids = [add_recording(w, run=run) for run in "abc"]
    assert [(row.id, row.run) for row in queries.recordings(store)] == list(
        zip(ids, "abc", strict=True)
    )


def test_an_exception_takes_everything_back(store: Store) -> None:
    def fail() -> None:
        with store.writer() as w:
            add_recording(w)
            w.blob(b"x" * 100)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert _counts(store) == {}


def test_many_rows_may_leave_columns_out(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        base = {"recording_id": recording, "kind": "k", "name": "n", "time_ns": 1, "data": {}}
        w.add_many("events", [{**base, "seq": 0}, {**base, "seq": 1, "stage": "joint"}])
        w.add_many("events", [])
    (found,) = queries.recordings(store)
    assert [event.stage for event in queries.events(store, found)] == [None, "joint"]


def test_json_goes_in_as_a_value_or_as_text(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w, argv='["a", "b"]')
        add_event(w, recording, 0, data={"z": 1, "a": [None, 1.5]})
        add_event(w, recording, 1, data='{"z":1}')
    (found,) = queries.recordings(store)
    assert found.argv == ["a", "b"]
    assert [event.data for event in queries.events(store, found)] == [
        {"z": 1, "a": [None, 1.5]},
        {"z": 1},
    ]
    with store.connect() as connection:
        assert connection.execute(text("SELECT data FROM events")).scalars().all() == [
            '{"a":[null,1.5],"z":1}',
            '{"z":1}',
        ]


def test_json_that_somebody_broke_is_a_damaged_store(store: Store) -> None:
    with store.writer() as w:
        add_event(w, add_recording(w), 0, data="{broken")
    with pytest.raises(DamagedStore, match="no JSON"):
        store.rows(select(events))


def test_text_that_no_encoding_explains(store: Store) -> None:
    with store.writer() as w:
        add_recording(w, cwd=b"/src/\xff".decode("utf-8", "surrogateescape"))
    assert queries.recordings(store)[0].cwd == "/src/\\udcff"


def test_a_signal_has_a_name(store: Store) -> None:
    with store.writer() as w:
        for value in (-11, 11, "SIGSEGV", 63, None):
            add_recording(w, exit_signal=value)
    names = [row.exit_signal for row in queries.recordings(store)]
    assert names == ["SIGSEGV", "SIGSEGV", "SIGSEGV", "signal 63", None]


def test_a_config_is_stored_once(store: Store) -> None:
    one = ConfigEntry("torch._inductor.config", "cpp.threads", 4)
    two = ConfigEntry("torch._dynamo.config", "suppress_errors", True, portable=False)
    with store.writer() as w:
        first = w.config([one, two])
        assert w.config([two, one]) == first
        assert w.config([one]) != first
        assert w.config([]) == w.config([])
    with store.writer() as w:
        assert w.config([one, two]) == first
    assert queries.config(store, first) == [two, one]


@pytest.mark.parametrize("value", ["text", "3", "", None, 3, 2.5, True, ["a"], {"a": None}])
def test_a_config_value_keeps_its_type(store: Store, value: object) -> None:
    entry = ConfigEntry("m", "k", value)  # type: ignore[arg-type]
    with store.writer() as w:
        config = w.config([entry])
    assert queries.config(store, config) == [entry]
    assert type(queries.config(store, config)[0].value) is type(value)


def test_put_keeps_the_first(store: Store) -> None:
    row = {"case_digest": "c", "signature_digest": "s", "environment_digest": "e", "seconds": 0.5}
    with store.writer() as w:
        assert w.put("verdicts", **row, verdict="same", observed={"a": 1})
        assert not w.put("verdicts", **row, verdict="other")
        assert _counts_in(w.connection) == {"verdicts": 1}


def test_put_over_keeps_the_last(store: Store) -> None:
    row = {"case_digest": "c", "signature_digest": "s", "environment_digest": "e", "seconds": 0.5}
    with store.writer() as w:
        w.put_over("verdicts", **row, verdict="same", observed={"a": 1})
        w.put_over("verdicts", **row, verdict="none", observed={"a": 2})
        assert _counts_in(w.connection) == {"verdicts": 1}
    (found,) = store.rows(select(verdicts))
    assert (found.verdict, found.observed) == ("none", {"a": 2})


def test_deleting_a_recording_deletes_what_belongs_to_it(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        w.add("environment", recording_id=recording, key="torch", value="2.13.0")
        w.add("lost", recording_id=recording, reason="r", place="p", count=1, message="m")
        compile_ = add_compile(w, recording)
        add_event(w, recording, 0, compile_id=compile_)
        graph = add_graph(w, compile_)
        w.add("graph_targets", graph_id=graph, depth=0, target="aten.add", count=2)
        add_failure(w, recording, compile_, Signature("hang", "lowering"))
        w.delete("recordings", recording)
    assert _counts(store) == {}


def test_a_row_can_be_changed(store: Store) -> None:
    with store.writer() as w:
        one, two = add_recording(w), add_recording(w)
        w.update("recordings", two, status="died", exit_signal=9)
    rows = {row.id: (row.status, row.exit_signal) for row in queries.recordings(store)}
    assert rows == {one: ("done", None), two: ("died", "SIGKILL")}


def test_a_row_of_nothing_is_refused(store: Store) -> None:
    with pytest.raises(DamagedStore, match="FOREIGN KEY"), store.writer() as w:
        add_compile(w, recording=77)


def test_a_store_opened_for_reading_has_no_writer(path: Path) -> None:
    with Store.open(path) as store, pytest.raises(UsageError, match="for reading only"):
        store.writer().__enter__()


def test_reading_really_cannot_write(path: Path) -> None:
    with Store.open(path) as store, store.connect() as connection:
        raw = connection.connection.driver_connection
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            raw.execute("DELETE FROM blobs")


def _counts(store: Store) -> dict[str, int]:
    with store.connect() as connection:
        return _counts_in(connection)


def _counts_in(connection: object) -> dict[str, int]:
    counts = {
        name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()  # type: ignore[attr-defined]
        for name in inspect(connection).get_table_names()
        if name in metadata.tables
    }
    return {name: count for name, count in counts.items() if count}

"""Questions to a store: what an address means, and statuses that are true now."""

import os
from dataclasses import fields

import pytest
from sqlalchemy import text

from tests.store.rows import (
    add_compile,
    add_event,
    add_failure,
    add_graph,
    add_recording,
    add_stage,
)
from torchreel.errors import DamagedStore, UsageError
from torchreel.store import Signature, Store, queries, records, schema
from torchreel.store.addressing import Address, parse
from torchreel.store.processes.liveness import PROCESS, process_identity

HANG = Signature("hang", "lowering")
CRASH = Signature("crash", "codegen", signal="SIGSEGV")


@pytest.mark.parametrize(
    ("table", "row_type"),
    [
        ("recordings", records.Recording),
        ("compiles", records.Compile),
        ("stages", records.Stage),
        ("event_pages", records.EventPages),
        ("stack_pages", records.StackPage),
        ("graphs", records.Graph),
        ("graph_targets", records.GraphTarget),
        ("checkpoints", records.Checkpoint),
        ("output_codes", records.OutputCode),
        ("failures", records.Failure),
        ("lost", records.Lost),
        ("reductions", records.Reduction),
        ("by_catch", records.ByCatch),
        ("replays", records.Replay),
    ],
)
def test_a_row_type_has_the_columns_of_its_table(table: str, row_type: type) -> None:
    columns = [column.name for column in schema.metadata.tables[table].columns]
    assert [field.name for field in fields(row_type)] == columns


def test_an_event_has_the_columns_of_its_table_but_for_the_row_id() -> None:
    columns = [column.name for column in schema.metadata.tables["events"].columns]
    assert ["id", *(field.name for field in fields(records.Event))] == columns


def test_an_empty_store_answers_everything(store: Store) -> None:
    assert queries.recordings(store) == []
    assert queries.failures(store) == []
    assert queries.reductions(store) == []
    assert queries.latest_failing(store) is None
    with pytest.raises(UsageError, match="no compile in it"):
        queries.compile_at(store, Address(store.target))
    with pytest.raises(UsageError, match="no recording 7"):
        queries.compiles(store, 7)


def test_environment_and_losses(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        w.add("environment", recording_id=recording, key="torch", value="2.13.0")
        w.add("lost", recording_id=recording, reason="late", place="p", count=3, message="m")
    assert queries.environment(store, recording) == {"torch": "2.13.0"}
    assert queries.lost(store, recording) == [records.Lost(recording, "late", "p", 3, "m")]


def test_what_belongs_to_a_compile(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        other = add_compile(w, recording, "0/0")
        mine = add_compile(w, recording, "1/0")
        for owner in (other, mine):
            place = {"compile_id": owner, "partition": "forward", "ordinal": 0}
            graph = add_graph(w, owner, digest=f"graph {owner}")
            w.add("graph_targets", graph_id=graph, depth=1, target="aten.sub", count=1)
            w.add("graph_targets", graph_id=graph, depth=0, target="aten.mul", count=2)
            w.add("checkpoints", **place, entry="aot", digest=f"checkpoint {owner}", graph_id=graph)
            w.add("output_codes", **place, digest=f"code {owner}")
            add_stage(w, owner, "dynamo")
            add_event(w, recording, owner, compile_id=owner)
            detail = {"entry": "graph", "verdict": "identical", "compared": {}, "detail": ""}
            w.add("replays", compile_id=owner, **detail)
    compile_ = queries.compile_by_id(store, mine)
    (graph,) = queries.graphs(store, compile_)
    assert graph.digest == f"graph {mine}"
    targets = queries.graph_targets(store, graph)
    assert [(row.target, row.depth) for row in targets] == [("aten.mul", 0), ("aten.sub", 1)]
    assert [row.digest for row in queries.checkpoints(store, compile_)] == [f"checkpoint {mine}"]
    assert [row.digest for row in queries.output_codes(store, compile_)] == [f"code {mine}"]
    assert [row.stage for row in queries.stages(store, compile_)] == ["dynamo"]
    assert [row.seq for row in queries.events(store, compile_)] == [mine]
    assert [row.verdict for row in queries.replays(store, compile_)] == ["identical"]
    whole = queries.recording(store, recording)
    assert [row.seq for row in queries.events(store, whole)] == [other, mine]


def test_the_first_failure_is_the_compiles_own(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        compile_ = add_compile(w, recording)
        add_failure(w, recording, compile_, CRASH, time_ns=9)
        add_failure(w, recording, compile_, HANG, time_ns=3)
        add_failure(w, recording, None, CRASH, time_ns=1)
    found = queries.failure_of(store, queries.compile_by_id(store, compile_))
    assert found is not None
    assert found.signature == HANG
    assert [row.signature for row in queries.failures(store, recording)] == [CRASH, HANG, CRASH]


def test_reductions_and_their_by_catch(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        one, two = (add_failure(w, recording, None, HANG) for _ in range(2))
        row = {"start_case": "s", "best_case": "b", "status": "fixpoint", "oracle_runs": 9}
        row |= {"cache_hits": 1, "seconds": 0.5, "started_ns": 1}
        reduction = w.add("reductions", failure_id=one, **row)
        w.add("reductions", failure_id=two, **row)
        catch = {"signature_digest": CRASH.digest, "signature": CRASH.to_json(), "case_digest": "c"}
        w.add("by_catch", reduction_id=reduction, **catch)
    failure = next(row for row in queries.failures(store) if row.id == one)
    (found,) = queries.reductions(store, failure)
    assert found.id == reduction
    assert [row.signature for row in queries.by_catch(store, found)] == [CRASH]
    assert len(queries.reductions(store)) == 2


def test_an_address_names_a_compile(store: Store) -> None:
    with store.writer() as w:
        one, two = add_recording(w), add_recording(w)
        ids = {
            "1/0/0": add_compile(w, one, "0/0", status="restarted"),
            "1/0/0_1": add_compile(w, one, "0/0", attempt=1, started_ns=2),
            "1/0/1": add_compile(w, one, "0/1", started_ns=3),
            "2/0/0": add_compile(w, two, "0/0", started_ns=4),
        }
        add_event(w, one, 0)
        add_event(w, one, 1, compile_id=ids["1/0/1"])
    assert (one, two) == (1, 2)

    def at(place: str) -> int:
        return queries.compile_at(store, parse(f"{store.target}#{place}")).id

    assert at("1/0/0") == ids["1/0/0_1"]
    assert at("1/0/0_0") == ids["1/0/0"]
    assert at("1/0/0_1") == ids["1/0/0_1"]
    assert at("1/0/1@0") == ids["1/0/1"]
    assert at("1@1") == ids["1/0/1"]
    assert at("1") == ids["1/0/1"]
    assert at("2") == ids["2/0/0"]
    assert queries.compile_at(store, parse(store.target)).id == ids["2/0/0"]
    for place, complaint in [
        ("1/7/7", "not in the store"),
        ("1/0/0_2", "not in the store"),
        ("9/0/0", "no recording 9"),
        ("1@9", "not in the event log"),
        ("1@0", "belongs to no compile"),
    ]:
        with pytest.raises(UsageError, match=complaint):
            at(place)


def test_the_place_of_a_compile_is_its_address(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        ids = [add_compile(w, recording, "0/0", attempt=attempt) for attempt in (0, 1)]
        ids.append(add_compile(w, recording, "!0/1/0"))
    for row_id in ids[1:]:
        row = queries.compile_by_id(store, row_id)
        assert queries.compile_at(store, parse(f"{store.target}#{row.place}")) == row


@pytest.mark.parametrize("status", ["failed", "crashed", "hung"])
def test_the_latest_failing_compile_is_meant_by_nothing(store: Store, status: str) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        add_compile(w, recording, "0/0", status="failed", started_ns=1)
        failing = add_compile(w, recording, "1/0", status=status, started_ns=2)
        add_compile(w, recording, "2/0", status="ok", started_ns=3)
        add_compile(w, recording, "3/0", status="restarted", started_ns=4)
        replay = add_recording(w, kind="replay", replay_of=failing)
        add_compile(w, replay, "1/0", status="failed", started_ns=5)
    assert queries.compile_at(store, parse(store.target)).id == failing
    assert queries.compile_at(store, parse(f"{store.target}#{replay}")).recording_id == replay


def test_a_wrong_result_fails_a_compile_that_went_well(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        wrong = add_compile(w, recording, "0/0", status="ok", started_ns=1)
        add_compile(w, recording, "1/0", status="ok", started_ns=2)
        add_failure(w, recording, wrong, Signature("wrong_result", "run", message="values"))
    found = queries.latest_failing(store)
    assert found is not None
    assert found.id == wrong


def test_a_recording_of_a_live_process_runs(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w, status="running", pid=os.getpid())
        w.add("environment", recording_id=recording, key=PROCESS, value=process_identity())
        compile_ = add_compile(w, recording, status="running")
    assert queries.recording(store, recording).status == "running"
    assert queries.compile_by_id(store, compile_).status == "running"
    assert queries.latest_failing(store) is None


def test_a_recording_whose_process_is_gone_has_died(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w, status="running", pid=2**31 - 1)
        finished = add_compile(w, recording, "0/0", status="ok")
        interrupted = add_compile(w, recording, "1/0", status="running")
    assert queries.recordings(store)[0].status == "died"
    statuses = {row.id: row.status for row in queries.compiles(store, recording)}
    assert statuses == {finished: "ok", interrupted: "crashed"}
    assert queries.compile_at(store, parse(store.target)).id == interrupted


def test_a_signature_that_somebody_broke(store: Store) -> None:
    with store.writer() as w:
        add_failure(w, add_recording(w), None, HANG)
        w.connection.execute(text("""UPDATE failures SET signature = '{"failure_class": "x"}'"""))
    with pytest.raises(DamagedStore, match="signature"):
        queries.failures(store)


def test_a_compile_that_somebody_deleted(store: Store) -> None:
    with pytest.raises(DamagedStore, match="row 3"):
        queries.compile_by_id(store, 3)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("started_ns", "'long ago'", "recordings.started_ns of row 1 is 'long ago', and no number"),
        ("cwd", "x'ff'", "recordings.cwd of row 1 is .*, and no text"),
    ],
)
def test_a_column_that_holds_what_it_should_not(
    store: Store, column: str, value: str, message: str
) -> None:
    with store.writer() as w:
        add_recording(w)
        w.connection.execute(text(f"UPDATE recordings SET {column} = {value}"))
    with pytest.raises(DamagedStore, match=message):
        queries.recordings(store)


def test_a_frame_that_dynamo_skipped_is_not_meant_where_another_was_compiled(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        skipped = add_compile(w, recording, "0/0", started_ns=1, status="skipped")
    assert queries.compile_at(store, parse(store.target)).id == skipped
    with store.writer() as w:
        compiled = add_compile(w, recording, "1/0", started_ns=2)
        add_compile(w, recording, "2/0", started_ns=3, status="skipped")
    assert queries.compile_at(store, parse(store.target)).id == compiled

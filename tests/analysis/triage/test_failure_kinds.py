"""Kinds of failures: triage says the same with them and without, and reads less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from tests.analysis.triage.test_failures import DOCUMENT, FAILED, LATER, add_reduction
from tests.analysis.triage.test_program_part import frame, traceback
from tests.server import Server
from tests.store.rows import add_compile, add_failure, add_graph, add_recording
from tests.store.statements import statements
from torchreel.analysis.triage import failure_kinds
from torchreel.analysis.triage.failure_kinds import StoredFailures, kinds_of, write_missing
from torchreel.analysis.triage.summaries import Triage, triage, triage_of
from torchreel.store import Signature, Store, Writer, parse, schema
from torchreel.store.failures.signature import crash_signature, predicate_signature
from torchreel.store.sending.push import no_kinds, push_path

CRASH = crash_signature("run", "", "SIGSEGV")


def _add(w: Writer, run: int, signature: Signature, *targets: str) -> None:
    number = add_recording(w, run=f"run {run}", pid=run + 1, rank=run % 3, started_ns=run)
    w.add_many("environment", [{"recording_id": number, "key": "torch", "value": "2.13.0"}])
    row = add_compile(w, number, status="failed", started_ns=2)
    if targets:
        graph = add_graph(w, row, call_nodes=len(targets))
        rows = [{"graph_id": graph, "depth": 0, "target": name, "count": 1} for name in targets]
        w.add_many("graph_targets", rows)
    add_failure(w, number, row, signature, time_ns=5 + run)
    add_failure(w, number, row, LATER, time_ns=600 + run)
    add_failure(w, number, None, predicate_signature("recompiles > 3"), time_ns=7)


def source(path: Path, runs: range) -> Path:
    """A store of failures: of two places, crashes with graphs and without, one that was reduced."""
    with Store.open(path, create=True) as store, store.writer() as w:
        for run in runs:
            match run % 5:
                case 0 | 1:
                    _add(w, run, FAILED, "op:aten.scatter.src", "op:aten.relu.default")
                case 2:
                    _add(w, run, CRASH, "op:aten.relu.default")
                case 3:
                    _add(w, run, CRASH)
                case 4:
                    number = add_recording(w, run=f"run {run}", pid=run + 1)
                    add_failure(w, number, None, LATER, time_ns=run)
        add_reduction(w, 1, DOCUMENT, runs.stop, "fixpoint")
    return path


@pytest.fixture(params=["server", "file"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store to push to."""
    if request.param == "file":
        Store.open(tmp_path / "joined.db", create=True).close()
        yield str(tmp_path / "joined.db")
    else:
        server: Server = request.getfixturevalue("server")
        url = server.new_database()
        Store.open(url, create=True).close()
        yield url


def _pushed(path: Path, target: str, *, with_kinds: bool = True) -> str:
    with Store.open(target, write=True) as central:
        report = push_path(str(path), central, kinds_of=kinds_of if with_kinds else no_kinds)
        assert report.refused == []
    return target


def _said(target: Path | str) -> list[str]:
    return _without_name(triage([str(target)]), str(target))


def _without_name(found: Triage, target: str) -> list[str]:
    return sorted(str(asdict(group)).replace(target, "") for group in found.groups)


def _rows(target: str, table: str) -> int:
    with Store.open(target) as store:
        return len(store.rows(select(schema.metadata.tables[table])))


def test_groups_are_the_same_with_kinds_and_without(tmp_path: Path, target: str) -> None:
    path = source(tmp_path / "run.db", range(12))
    _pushed(path, target)
    assert _rows(target, "kinds") == 6  # four of them without a graph, of as many runs
    assert _rows(target, "failure_kinds") == 2 + 3 * 10
    assert _said(target) == _said(path)
    assert len(_said(target)) == 6


GENERATED = Signature(
    "exception", "run", "", ("AssertionError",), ("torch._inductor.x:<generated>",), "expected N"
)


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        ("assert_size_stride(buf2, (5, ), (1, ), 'torch.ops.aten.exp.default')", 1),
        ("buf2 = torch.ops.aten.exp.default(buf1)", 2),
    ],
    ids=["refused", "called"],
)
def test_the_operator_in_generated_code_is_in_a_kind(
    tmp_path: Path, target: str, line: str, groups: int
) -> None:
    path = tmp_path / "run.db"
    with Store.open(path, create=True) as store, store.writer() as w:
        text = traceback(frame("/cache/ab/cab.py", "call", line)).encode()
        for run in range(2):
            _add(w, run, GENERATED, "op:aten.exp.default", *["op:aten.relu.default"][run:])
        of_generated = schema.failures.c.signature_digest == GENERATED.digest
        w.connection.execute(
            update(schema.failures).where(of_generated).values(traceback=w.blob(text))
        )
    _pushed(path, target)
    assert _said(target) == _said(path)
    assert len(_said(target)) == groups
    parts = []
    for each in (str(path), target):
        with Store.open(each) as opened:
            parts.append({found.part for found in StoredFailures.read(opened).each()})
    assert parts[0] == parts[1]


def test_what_came_without_a_kind_is_read_in_full(tmp_path: Path, target: str) -> None:
    path = source(tmp_path / "run.db", range(7))
    _pushed(path, target)
    source(path, range(7, 12))
    _pushed(path, target, with_kinds=False)
    assert _said(target) == _said(path)
    with Store.open(target, write=True) as central:
        assert write_missing(central) == 13
        assert write_missing(central) == 0
    assert _said(target) == _said(path)


def test_kinds_of_other_rules_do_not_count(tmp_path: Path, target: str) -> None:
    path = source(tmp_path / "run.db", range(12))
    _pushed(path, target)
    with Store.open(target, write=True) as central, central.writer() as w:
        w.connection.execute(update(schema.failure_kinds).values(rules=failure_kinds.RULES - 1))
        w.connection.execute(update(schema.kinds).values(document={"of": "another version"}))
    assert _said(target) == _said(path)


def test_a_kind_that_is_none_is_said_and_its_failures_are_read(tmp_path: Path, target: str) -> None:
    path = source(tmp_path / "run.db", range(12))
    _pushed(path, target)
    with Store.open(target, write=True) as central, central.writer() as w:
        w.connection.execute(update(schema.kinds).values(document={"a": 1}))
    assert _said(target) == _said(path)
    assert len(triage([target]).unreadable) == 6


@pytest.mark.sampled
def test_the_group_of_one_failure(tmp_path: Path, target: str) -> None:
    _pushed(source(tmp_path / "run.db", range(12)), target)
    groups = triage([target]).groups
    for group in groups:
        for address in group.addresses:
            assert triage_of(parse(address)).groups == (group,)
            whole = parse(address)._replace(compile=None)
            assert triage_of(whole).groups == (group,)


@pytest.mark.sampled
def test_one_failure_is_told_without_reading_the_others(tmp_path: Path, target: str) -> None:
    read = []
    for runs in (range(12), range(12, 72)):
        _pushed(source(tmp_path / f"{runs.start}.db", runs), target)
        with Store.open(target) as central, statements(central) as executed:
            StoredFailures.read(central)
        read.append(executed)
    assert len(read[0]) == len(read[1])
    assert not any("FROM graph_targets" in statement for statement in read[1])


def test_a_baseline_is_read_by_its_kinds(tmp_path: Path, target: str) -> None:
    _pushed(source(tmp_path / "old.db", range(3)), target)
    new = source(tmp_path / "new.db", range(20, 25))
    found = triage([str(new)], [target]).groups
    assert sorted((group.what, group.is_new) for group in found) == [
        ("KeyError", False), ("SIGSEGV", False), ("SIGSEGV", True), ("ValueError", True),
    ]  # fmt: skip


def test_kinds_go_with_their_failures(tmp_path: Path, target: str) -> None:
    _pushed(source(tmp_path / "run.db", range(12)), target)
    with Store.open(target, write=True) as central:
        with central.writer() as w:
            w.connection.execute(delete(schema.recordings).where(schema.recordings.c.id != 3))
        assert len(StoredFailures.read(central).kinds) == 1
    assert _rows(target, "failure_kinds") == 3
    assert [group.failures for group in triage([target]).groups] == [1]

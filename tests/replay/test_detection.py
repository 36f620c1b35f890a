"""A recording that says something else than it did is told from its replay, at the right event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy
import torch
from click.testing import Result
from typer.testing import CliRunner

import torchreel
from tests.replay import mutations
from tests.replay.mutations import Mutation, apply, changed, outcome
from tests.replay.programs import UNCACHED, record
from torchreel.cli import app
from torchreel.commands.views.replay import report
from torchreel.errors import DamagedStore, UnsupportedError, UsageError
from torchreel.replay import Verdict, replay
from torchreel.replay.compare.causes import likely
from torchreel.replay.compare.rules import CLASSES, EXCUSES
from torchreel.replay.compare.verdict import Comparison
from torchreel.replay.many import replay_all, replay_repeatedly, worst
from torchreel.store import queries, schema
from torchreel.store.blobs.pages import documents_of, write_pages
from torchreel.store.database import Store
from torchreel.store.records import Compile

PROGRAM = (
    "f = torch.compile(lambda x, w: torch.tanh(x @ w).sum(0) * x.shape[0], dynamic=True)\n"
    "f(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).sum().backward()"
)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One program, recorded once and replayed once: identical."""
    path = tmp_path_factory.mktemp("replayed") / "run.db"
    assert record(path, "trained", source=PROGRAM, **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, mutations.original(store))
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    return path


@pytest.mark.slow
def test_an_identical_replay_says_what_it_compared(replayed: Path) -> None:
    with Store.open(replayed) as store:
        found = outcome(store)
        lines = mutations.lines(store, mutations.original(store))
    assert found.agrees
    kinds = {row.kind for row in found.compared if row.identical}
    assert {"shape_env.call", "fake_tensors.dispatch", "proxies.node", "aot.metadata"} <= kinds
    assert {"inductor.lowering", "inductor.kernel", "inductor_output_code", "graph"} <= kinds
    assert "chromium_event" not in kinds
    events = [row for row in found.compared if row.kind not in ("graph", "output code")]
    assert sum(row.identical for row in events) == len(lines) > 200
    assert {row.partition for row in events} == {"", "backward"}
    assert all("set aside" in note for note in found.notes)


HANDFUL = [
    Mutation("shape_env.call", 0),
    Mutation("shape_env.set", 0),
    Mutation("fake_tensors.dispatch", 1),
    Mutation("proxies.node", 2),
    Mutation("aot.partition", 0),
    Mutation("inductor.lowering", 1),
    Mutation("inductor.kernel", 0),
    Mutation("inductor_output_code", 0),
    Mutation("post_grad", table="graphs"),
    Mutation("backward", table="output_codes"),
]


@pytest.mark.parametrize("mutation", HANDFUL, ids=str)
def test_one_changed_fact_is_found_where_it_is(
    mutation: Mutation, replayed: Path, tmp_path: Path
) -> None:
    seq = apply(mutation, replayed, tmp_path / "mutated.db")
    with Store.open(tmp_path / "mutated.db") as store:
        found = outcome(store)
    assert not found.agrees
    assert found.difference
    if seq is None:
        assert mutations.expected(mutation) in found.detail
        return
    assert found.divergence is not None
    assert found.divergence.seq == seq
    assert len(found.divergence.before) == min(10, found.divergence.number - 1)
    assert f"at event {seq}" in found.detail
    assert {line[:1] for line in found.difference.splitlines()[2:]} >= {"-", "+"}


FRAMED = (
    "SEEN, LAYER = [], Block().eval()\n"
    "def fn(x, unused, words):\n"
    "    SEEN.append(1)\n"
    "    y = LAYER(x).sin() * len(words) + x.shape[0]\n"
    "    torch._dynamo.graph_break()\n"
    "    return y\n"
    "compiled = torch.compile(fn, backend='aot_eager', dynamic=True)\n"
    "for n in (3, 4):\n"
    "    compiled(torch.randn(n, 8), torch.ones(2), ['a'] * n)\n"
)
NOT_IN_FRAMED = {
    "frame.cache", "frame.recompile", "frame.cache_miss", "frame.restart",
    "frame.speculation_failed", "frame.graph_break", "frame.skip", "guards.alias",
    "output_graph.hook",
}  # fmt: skip


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that was recorded with its frames, and one of them replayed: identical."""
    path = tmp_path_factory.mktemp("framed") / "run.db"
    assert record(path, "framed", source=FRAMED, TORCHREEL_FRAMES="all", **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, mutations.original(store), "frame", trust=True)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    return path


@pytest.mark.slow
def test_each_field_of_dynamos_events_is_compared(framed: Path, tmp_path: Path) -> None:
    met: set[str] = set()
    missed: list[str] = []
    for mutation in mutations.mutations_of_dynamo():
        try:
            seq = apply(mutation, framed, tmp_path / "mutated.db", "frame")
        except LookupError:
            continue
        met.add(mutation.kind)
        with Store.open(tmp_path / "mutated.db") as store:
            found = outcome(store, "frame").divergence
        if found is None or found.seq != seq:
            missed.append(str(mutation))
    assert missed == []
    assert {one.kind for one in mutations.mutations_of_dynamo()} - met == NOT_IN_FRAMED


def _without(path: Path, copy: Path, seq: int) -> None:
    """A copy of a store whose event log lacks an event, the only one of its page."""
    copy.write_bytes(path.read_bytes())
    with Store.open(copy, write=True) as store, store.writer() as writer:
        pages = schema.event_pages
        for page in writer.connection.execute(pages.select().where(pages.c.recording_id == 1)):
            documents = documents_of(store.read_blob(page.digest))
            left = [n for n, doc in enumerate(documents) if json.loads(doc)["seq"] != [seq]]
            if len(left) == len(documents) - 1:
                kinds = [page.kinds[n] for n in left]
                digest = writer.blob(write_pages([documents[n] for n in left]))
                return writer.update("event_pages", page.id, kinds=kinds, digest=digest)
    raise LookupError(seq)


def test_a_hole_in_the_event_log_is_named(replayed: Path, tmp_path: Path) -> None:
    with Store.open(replayed) as store:
        rows = queries.events(store, mutations.original(store), "aot.partition")
    _without(replayed, tmp_path / "hole.db", rows[0].seq)
    with Store.open(tmp_path / "hole.db") as store:
        found = outcome(store)
    assert f"1 events from {rows[0].seq} on are missing" in found.hole


def test_a_blob_with_another_digest_is_refused(replayed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "blob.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = mutations.original(store)
        blobs = schema.blobs
        digest = queries.checkpoints(store, compile)[0].digest
        other = queries.output_codes(store, compile)[0].digest
        with store.writer() as writer:
            row = writer.connection.execute(blobs.select().where(blobs.c.digest == other)).one()
            statement = blobs.update().where(blobs.c.digest == digest)
            moved = {key: value for key, value in row._mapping.items() if key != "digest"}
            writer.connection.execute(statement.values(moved))
        with pytest.raises(DamagedStore, match="digest"):
            replay(store, compile)


def test_a_graph_that_is_none_is_refused(replayed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "none.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = mutations.original(store)
        digest = queries.output_codes(store, compile)[0].digest
        graphs = [row for row in queries.graphs(store, compile) if row.stage == "forward"]
        with store.writer() as writer:
            writer.update("graphs", graphs[0].id, digest=digest)
        with pytest.raises(DamagedStore, match=r"has as graph \(\w+\) is none"):
            outcome(store)


def test_a_event_log_cut_off_by_a_crash_is_compared_as_far_as_it_goes(
    replayed: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "cut.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = mutations.original(store)
        cut = next(e.seq for e in queries.events(store, compile) if e.stage == "codegen")
        events, pages = schema.events, schema.event_pages
        with store.writer() as writer:
            # What is on disk at a crash ends with a commit: no page lies across it.
            spans = writer.connection.execute(
                sqlalchemy.select(pages.c.first_seq, pages.c.last_seq)
                .where(pages.c.recording_id == 1)
                .order_by(pages.c.last_seq.desc())
            )
            for first, last in spans.all():
                cut = min(cut, first) if last >= cut else cut
            for table, column in ((events, events.c.seq), (pages, pages.c.last_seq)):
                mine = (table.c.recording_id == 1) & (column >= cut)
                writer.connection.execute(table.delete().where(mine))
            writer.update("compiles", compile.id, status="crashed")
        found = mutations.outcome(store, cut=True)
        assert found.divergence is None
        assert any("as far as it goes" in note for note in found.notes)
        assert sum(row.identical for row in found.compared) > 20


def test_another_release_of_torch_is_refused_unless_allowed(replayed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "old.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        environment = schema.environment
        with store.writer() as writer:
            torch_row = (environment.c.recording_id == 1) & (environment.c.key == "torch")
            writer.connection.execute(
                environment.update().where(torch_row).values(value="2.12.0+cpu")
            )
        compile = mutations.original(store)
        with pytest.raises(UnsupportedError, match=r"torch 2\.12\.0\+cpu, and this is torch 2\.13"):
            replay(store, compile)
        verdict = replay(store, compile, "shapes", allow=("version",))
        assert verdict.verdict == "identical"
        with pytest.raises(UsageError, match="'weather'"):
            replay(store, compile, allow=("weather",))


def test_the_shape_env_alone_is_held_to_its_snapshots(replayed: Path, tmp_path: Path) -> None:
    with Store.open(replayed, write=True) as store:
        verdict = replay(store, mutations.original(store), "shapes")
    assert verdict.verdict == "identical"
    assert [row.kind for row in verdict.compared] == [
        "ShapeEnv at graph", "ShapeEnv at aot", "ShapeEnv at aot",
    ]  # fmt: skip
    assert "events replayed" in verdict.notes[0]


def test_a_change_of_the_event_log_is_noticed_by_the_shapes(replayed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shapes.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = mutations.original(store)
        symbol = queries.events(store, compile, "shape_env.symbol")[0]
        mutations.change_data(store, symbol, "hint")
        verdict = replay(store, compile, "shapes")
    assert verdict.verdict == "diverged"
    assert "backed_var_to_val" in verdict.difference
    assert "at event" in verdict.detail


def _verdict(kind: str, detail: str = "") -> Verdict:
    return Verdict(kind, "graph", (Comparison("joint", "", "graph", 1, 1, 1),), detail)


def test_all_stops_at_nothing(replayed: Path) -> None:
    def one(compile: Compile, entry: str) -> Verdict:
        if entry == "aot":
            raise UnsupportedError("there is none")
        return _verdict("identical" if entry == "graph" else "diverged")

    with Store.open(replayed) as store:
        compiles = queries.compiles(store, 1)
        rows = list(replay_all(store, None, ("aot", "graph", "shapes"), one))
    assert len(rows) == 3 * len(compiles)  # those of the replay are not taken
    assert [row.verdict.verdict for row in rows[:3]] == ["refused", "identical", "diverged"]
    assert rows[0].verdict.detail == "there is none"
    assert worst([row.verdict for row in rows]) == 3
    assert worst([row.verdict for row in rows[1:3]]) == 1
    assert worst([rows[1].verdict]) == 0


def test_an_attempt_that_was_given_up_is_replayed_from_the_frame_only(
    replayed: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "restarted.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        (compile,) = queries.compiles(store, 1)
        found = []
        for status in ("ok", "restarted"):
            with store.writer() as writer:
                writer.update("compiles", compile.id, status=status)
            rows = replay_all(store, 1, ("frame", "graph"), lambda c, e: _verdict(e))
            found.append([row.verdict.verdict for row in rows])
    assert found == [["frame", "graph"], ["frame"]]


def test_a_frame_without_a_graph_is_not_replayed_from_one(tmp_path: Path) -> None:
    path = tmp_path / "left.db"
    layer = torch.nn.GRU(2, 3)
    torch._dynamo.reset()
    with torchreel.record(path):
        torch.compile(layer, backend="aot_eager")(torch.ones(1, 1, 2))  # Dynamo leaves it to Python
        torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2))
    with Store.open(path, write=True) as store:
        left, whole = (row for row in queries.compiles(store, 1) if row.status in ("ok", "skipped"))
        assert [queries.is_without_graph(store, row) for row in (left, whole)] == [True, False]
        rows = list(replay_all(store, 1, ("graph", "aot", "shapes"), lambda c, e: _verdict(e)))
        entries = [(row.compile.place, row.verdict.verdict) for row in rows]
        assert entries == [
            (left.place, "shapes"), (whole.place, "graph"), (whole.place, "aot"),
            (whole.place, "shapes"),
        ]  # fmt: skip
        with pytest.raises(UnsupportedError, match="made no graph"):
            replay(store, left, "graph")
        with store.writer() as writer:
            row = {"recording_id": 1, "reason": "buffer full", "place": "event log"}
            writer.add_many("lost", [{**row, "count": 1, "message": ""}])
        assert not queries.is_without_graph(store, left), "its graph may be what was lost"


def test_a_frame_that_was_compiled_too_often_has_no_graph_to_be_replayed_from(
    tmp_path: Path,
) -> None:
    path = tmp_path / "often.db"
    torch._dynamo.reset()
    with torchreel.record(path), torch._dynamo.config.patch(recompile_limit=1):
        compiled = torch.compile(lambda x, name: x.sin() + len(name), backend="aot_eager")
        for name in ("a", "bc"):
            compiled(torch.ones(2), name)
    with Store.open(path) as store:
        whole, left = queries.compiles(store, 1)
        assert left.status == "skipped"
        assert [queries.is_without_graph(store, row) for row in (whole, left)] == [False, True]


def test_repeated_replays_have_to_agree(replayed: Path) -> None:
    with Store.open(replayed) as store:
        compile = mutations.original(store)
    same = replay_repeatedly(lambda c, e: _verdict("identical"), compile, "graph", 3)
    assert same.verdict == "identical"
    assert "3 replays, all with this result" in same.notes[-1]
    results = iter(
        [_verdict("identical"), _verdict("diverged", "at event 7"), _verdict("diverged")]
    )
    other = replay_repeatedly(lambda c, e: next(results), compile, "graph", 3)
    assert (other.verdict, other.detail) == ("diverged", "at event 7")
    assert "nondeterminism" in other.cause
    with pytest.raises(UsageError):
        replay_repeatedly(lambda c, e: same, compile, "graph", 0)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", *arguments])


def test_all_compiles_come_as_a_table_and_as_json(replayed: Path) -> None:
    found = _run(f"{replayed}#1", "--all", "--entry", "shapes", "--json")
    assert found.exit_code == 0
    rows = json.loads(found.stdout)
    assert [(row["entry"], row["verdict"]) for row in rows] == [("shapes", "identical")] * len(rows)
    assert rows
    assert all(row["compared"] == row["identical"] > 0 for row in rows)
    table = _run(f"{replayed}#1", "--all", "--entry", "shapes")
    assert f"{len(rows)} identical" in table.stdout
    assert _run(str(replayed), "--all", "--repeat", "2").exit_code != 0


def test_a_divergence_is_shown_with_what_both_had_before(
    replayed: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seq = apply(Mutation("inductor.lowering", 1), replayed, tmp_path / "mutated.db")
    with Store.open(tmp_path / "mutated.db") as store:
        compile, found = mutations.original(store), outcome(store)
        verdict = Verdict(
            "diverged", "graph", found.compared, found.detail, found.difference,
            divergence=found.divergence, cause="version: torch 2.13.0 recorded, 2.13.1 here",
        )  # fmt: skip
        report(store, compile, verdict)
    shown = capsys.readouterr().out
    assert f"diverged: at event {seq} in stage lowering" in shown
    assert "the last 10 events that both have:" in shown
    assert "likely cause: version: torch 2.13.0 recorded, 2.13.1 here" in shown
    assert "--- recorded" in shown


def test_a_likely_cause_is_told_from_the_surroundings(replayed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        table = schema.environment
        with store.writer() as writer:
            for key, value in (("python", "3.9.1"), ("cpu", "AVX9")):
                row = (table.c.recording_id == 1) & (table.c.key == key)
                writer.connection.execute(table.update().where(row).values(value=value))
        compile, replay_of = mutations.original(store), queries.recordings(store)[-1]
        (again,) = queries.compiles(store, replay_of.id)
        cause = likely((store, compile), (store, again), "nondeterminism.device")
    assert "version: python 3.9.1 recorded" in cause
    assert "device: cpu AVX9 recorded" in cause
    assert "nondeterminism" in cause


def test_every_excuse_is_of_a_class_that_says_why() -> None:
    assert {excuse.why for excuse in EXCUSES} <= CLASSES.keys()
    assert all(reason for reason in CLASSES.values())


def test_an_excused_field_excuses_no_other(replayed: Path, tmp_path: Path) -> None:
    """`aot.metadata` may differ in one entry of its config, and in no other."""
    copy = tmp_path / "config.db"
    copy.write_bytes(replayed.read_bytes())
    with Store.open(copy, write=True) as store:
        (event,) = queries.events(store, mutations.original(store), "aot.metadata")
        assert isinstance(event.data, Mapping)
        config = event.data["config"]
        assert isinstance(config, Mapping)
        excused = {**config, "dynamic_shapes": not config["dynamic_shapes"]}
        mutations.put_data(store, event, {**event.data, "config": excused})
        assert outcome(store).agrees
        other = {**config, "is_export": changed(config["is_export"])}
        mutations.put_data(store, replace(event), {**event.data, "config": other})
        found = outcome(store)
    assert found.divergence is not None
    assert found.divergence.seq == event.seq

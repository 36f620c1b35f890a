"""A recording that is copied into another store says there what it said before."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from tests.store.rows import add_event, add_recording
from torchreel.store import queries, schema
from torchreel.store.configs import ConfigEntry
from torchreel.store.copying import copy_recording
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature

ENTRY = ConfigEntry("torch._inductor.config", "max_fusion_size", 1)


def _fill(store: Store, name: str) -> int:
    """A recording with a row in every table that is copied; its id."""
    signature = Signature("exception", "lowering", message=name)
    with store.writer() as writer:
        recording = writer.add(
            "recordings", run="r", kind="replay", pid=7, argv=[name], cwd="/", started_ns=1,
            ended_ns=2, status="finished", replay_of=3, entry="graph",
        )  # fmt: skip
        writer.add("environment", recording_id=recording, key="torch", value=name)
        writer.add("lost", recording_id=recording, reason="r", place="p", count=1, message=name)
        compile = writer.add(
            "compiles", recording_id=recording, compile_id="0/0", attempt=0, frame_name=name,
            frame_file="f", frame_line=1, config_id=writer.config([ENTRY]), status="failed",
            started_ns=1,
        )  # fmt: skip
        writer.add(
            "stages", compile_id=compile, stage="lowering", partition="", started_ns=1,
            status="failed",
        )  # fmt: skip
        writer.add(
            "events", recording_id=recording, seq=1, compile_id=compile, kind="k", name=name,
            time_ns=1, data="\"text\"",
        )  # fmt: skip
        digest = writer.blob(name.encode())
        graph = writer.add(
            "graphs", compile_id=compile, stage="dynamo", partition="", ordinal=0, nodes=1,
            call_nodes=1, inputs=0, outputs=0, digest=digest,
        )  # fmt: skip
        writer.add("graph_targets", graph_id=graph, depth=0, target=name, count=1)
        checkpoint = writer.add(
            "checkpoints", compile_id=compile, entry="graph", partition="", ordinal=0,
            digest=digest, graph_id=graph,
        )  # fmt: skip
        writer.add("output_codes", compile_id=compile, partition="", ordinal=0, digest=digest)
        writer.add(
            "frame_bundles", compile_id=compile, status="kept", reason="", size=1, digest=digest
        )
        writer.add(
            "failures", recording_id=recording, compile_id=compile, stage="lowering",
            partition="", failure_class="exception", exception_type="E", message=name, chain=[],
            signature=signature.to_json(), signature_digest=signature.digest,
            checkpoint_id=checkpoint, time_ns=1,
        )  # fmt: skip
    return recording


def test_a_copy_has_all_that_the_recording_had_and_nothing_else(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "own.db", create=True) as own,
        Store.open(tmp_path / "target.db", create=True) as target,
    ):
        _fill(target, "there before")
        _fill(own, "another")
        mine = _fill(own, "mine")
        copied = copy_recording(own, mine, target)
        assert copied != mine or copied == 2
        (recording,) = [row for row in queries.recordings(target) if row.id == copied]
        assert (recording.argv, recording.replay_of, recording.entry) == (["mine"], 3, "graph")
        assert queries.environment(target, copied) == {"torch": "mine"}
        assert [row.message for row in queries.lost(target, copied)] == ["mine"]
        (compile,) = queries.compiles(target, copied)
        assert [e.data for e in queries.events(target, compile)] == ["text"]
        (checkpoint,) = queries.checkpoints(target, compile)
        assert target.read_blob(checkpoint.digest) == b"mine"
        failure = queries.failure_of(target, compile)
        assert failure is not None
        assert (failure.message, failure.checkpoint_id) == ("mine", checkpoint.id)
        assert queries.frame_bundle(target, compile) is None, "code is not copied"
        assert len(target.rows(select(schema.recordings))) == 2
        assert len(target.rows(select(schema.configs))) == 1
        entries = target.rows(select(schema.config_entries))
        assert [(row.key, row.value) for row in entries] == [("max_fusion_size", 1)]


def test_a_json_null_is_copied_as_one(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db", create=True) as source:
        with source.writer() as w:
            add_event(w, add_recording(w), 0, data="null")
        with Store.open(tmp_path / "b.db", create=True) as target:
            copied = copy_recording(source, 1, target)
            (event,) = queries.events(target, queries.recording(target, copied))
            assert event.data is None

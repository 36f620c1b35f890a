"""Frames, attempts, recompiles, graph breaks, and what fails while Dynamo traces."""

import torch

from tests.recorder.conftest import Record
from torchreel.analysis.skipped import verb_of, why_skipped
from torchreel.analysis.why import grouped_causes
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.store import queries
from torchreel.store.documents.jsontypes import canonical_json, parse_json


def double(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def test_a_compile_has_its_frame_its_backend_and_its_stages(record: Record) -> None:
    log = record(lambda: torch.compile(double, backend="aot_eager")(torch.ones(3)))
    compile = log.compile
    assert (compile.compile_id, compile.attempt, compile.status) == ("0/0", 0, "ok")
    assert (compile.frame_id, compile.frame_compile_id) == (0, 0)
    assert (compile.frame_name, compile.backend) == ("double", "aot_eager")
    assert compile.frame_file == __file__
    assert compile.frame_line == double.__code__.co_firstlineno
    assert compile.frame_source is not None
    assert b"x.sin() * 2" in log.store.read_blob(compile.frame_source)
    assert compile.ended_ns is not None
    assert ("dynamo", "", "ok") in log.stages()
    assert ("guards", "", "ok") in log.stages()
    assert log.lost() == []


def test_the_graph_and_its_checkpoint_are_in_the_store(record: Record) -> None:
    log = record(lambda: torch.compile(double, backend="eager")(torch.ones(3)))
    (graph,) = queries.graphs(log.store, log.compile)
    assert (graph.stage, graph.call_nodes, graph.inputs) == ("dynamo", 2, 1)
    (checkpoint,) = queries.checkpoints(log.store, log.compile)
    assert (checkpoint.entry, checkpoint.graph_id) == ("graph", graph.id)
    found = log.store.read_blob(checkpoint.digest)
    doc = CheckpointDoc.from_bytes(found)
    assert [node.target for node in doc.graph.nodes if node.is_call] == ["sin", "fn:_operator.mul"]
    assert doc.to_bytes() == found == canonical_json(parse_json(found))
    assert log.compile.config_id is not None


def test_a_restart_is_an_attempt_and_no_failure(record: Record) -> None:
    def program() -> None:
        for _ in range(2):  # a reset gives the same names again
            torch.compile(breaks, backend="eager")(torch.ones(3))
            torch._dynamo.reset()

    log = record(program)
    found = [(row.compile_id, row.attempt, row.status) for row in log.compiles]
    assert found == [("0/0", 0, "restarted"), ("0/0", 1, "ok"), ("1/0", 0, "ok")] * 2
    checkpoints = [len(queries.checkpoints(log.store, row)) for row in log.compiles]
    assert checkpoints == [0, 1, 1] * 2
    assert [row.frame_name for row in log.compiles[:2]] == ["breaks", "breaks"]
    assert log.compiles[2].frame_name.startswith("torch_dynamo_resume_in_breaks")
    assert queries.failures(log.store) == []


def test_a_recompile_is_another_compile_of_the_frame(record: Record) -> None:
    def program() -> None:
        compiled = torch.compile(double, backend="eager")
        for size in (3, 4, 5):
            compiled(torch.ones(size))

    log = record(program)
    assert [row.compile_id for row in log.compiles] == ["0/0", "0/1"]
    static, dynamic = (queries.checkpoints(log.store, row)[0] for row in log.compiles)
    assert not CheckpointDoc.from_bytes(log.store.read_blob(static.digest)).hints
    assert CheckpointDoc.from_bytes(log.store.read_blob(dynamic.digest)).hints


def test_the_config_of_a_compile_is_that_of_its_start(record: Record) -> None:
    """Inductor sets an entry while AOTAutograd runs, which the last checkpoint had."""

    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        with torch._inductor.config.patch(max_fusion_size=3, force_disable_caches=True):
            torch.compile(lambda x: x.sin() * 2, dynamic=True)(x).sum().backward()

    log = record(program)
    entries = {point.entry for point in queries.checkpoints(log.store, log.compile)}
    assert entries > {"graph"}
    known = {(e.module, e.key) for e in queries.config(log.store, log.compile.config_id)}
    assert ("inductor", "max_fusion_size") in known
    assert ("functorch", "unlift_effect_tokens") not in known


def test_a_frame_at_the_recompile_limit_is_left_to_python(record: Record) -> None:
    def measured(x: torch.Tensor, text: str) -> torch.Tensor:
        return x + len(text)

    def program() -> None:
        compiled = torch.compile(measured, backend="eager")
        with torch._dynamo.config.patch(recompile_limit=2):
            for text in ("a", "ab", "abc"):
                compiled(torch.ones(3), text)

    log = record(program)
    assert [row.status for row in log.compiles] == ["ok", "ok", "skipped"]
    last = log.compiles[-1]
    assert why_skipped(log.store, last) == "recompile_limit (2) reached"
    assert verb_of(log.store, last) == "why-recompile"
    (recording,) = queries.recordings(log.store)
    assert str(grouped_causes.counts(log.store, recording)) == "2 recompiles for 1 cause"


def test_a_failure_while_dynamo_traces_has_no_graph(record: Record) -> None:
    log = record(lambda: torch.compile(breaks, backend="eager", fullgraph=True)(torch.ones(3)))
    (failure,) = queries.failures(log.store)
    assert (failure.stage, failure.failure_class) == ("dynamo", "exception")
    assert failure.exception_type == "torch._dynamo.exc.Unsupported"
    assert failure.checkpoint_id is None
    assert log.compile.status == "failed"
    assert log.stages() == [("dynamo", "", "failed")]
    assert log.graphs() == []


def test_a_frame_with_nothing_to_compile_is_left_to_python(record: Record) -> None:
    log = record(lambda: torch.compile(lambda x: x, backend="eager")(torch.ones(2)))
    assert [row.status for row in log.compiles] == ["skipped"]
    assert why_skipped(log.store, log.compile).startswith("No ops traced")


def test_a_module_of_torch_has_its_own_name(record: Record) -> None:
    model = torch.nn.Sequential(torch.nn.ReLU())
    log = record(lambda: torch.compile(model, backend="eager")(torch.ones(2)))
    assert [row.frame_name for row in log.compiles] == ["Sequential.forward"]


def test_a_frame_that_falls_back_to_eager_did_not_fail(record: Record) -> None:
    def unsupported(x: torch.Tensor) -> torch.Tensor:
        for y in (x, x):
            torch._dynamo.graph_break()
            x = x + y
        return x

    result = []
    log = record(lambda: result.append(torch.compile(unsupported, backend="eager")(torch.ones(2))))
    assert result[0].tolist() == [4.0, 4.0] or result[0].tolist() == [3.0, 3.0]
    assert queries.failures(log.store) == []
    assert [row.status for row in log.compiles] == ["skipped"]
    assert why_skipped(log.store, log.compile) == "graph break in loop"

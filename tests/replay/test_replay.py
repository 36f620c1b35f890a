"""Record a program, replay each compile in a fresh process: every stage identical."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.replay.programs import PROGRAMS, UNCACHED, record
from torchreel.errors import UnsupportedError, UsageError
from torchreel.events.proxies import ProxyTrace
from torchreel.minifier.storage.added_failures import add_failure
from torchreel.replay import Verdict, replay
from torchreel.replay.compare import compiles
from torchreel.replay.compare.compiles import Question, Side
from torchreel.replay.compare.rules import LIBRARIES
from torchreel.replay.compare.selection import Point
from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.replay.processes.fork_server import warm
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import wrong_result_signature
from torchreel.store.records import Compile

TRAINED = {"training", "dynamic_training", "autocast", "checkpointed"}
FROM_ATEN = ("dynamic_training", "branches", "mutation_and_aliasing", "checkpointed")


def compiles_of(store: Store, name: str = "") -> list[Compile]:
    """The compiles of a program (of all programs), restarted attempts left out."""
    (program, *_) = queries.recordings(store)
    found = [
        compile
        for compile in queries.compiles(store, program.id)
        if compile.status != "restarted" and name in ("", Path(compile.frame_file).stem)
    ]
    assert found, "nothing was recorded: the test would compare nothing"
    assert queries.lost(store, program.id) == []
    return found


def kinds(verdict: Verdict) -> set[tuple[str, str]]:
    return {(row.kind, row.stage) for row in verdict.compared if row.identical}


def partitions(verdict: Verdict) -> set[str]:
    return {row.partition for row in verdict.compared if row.kind == "output code"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, recorded in one process."""
    path = tmp_path_factory.mktemp("everything") / "run.db"
    assert record(path, *PROGRAMS, **UNCACHED) == 0
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_replay_from_the_graph_is_identical(name: str, everything: Path) -> None:
    with Store.open(everything, write=True) as store:
        compile = compiles_of(store, name)[-1]
        verdict = replay(store, compile, "graph")
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
        replayed = queries.recording(store, verdict.recording_id or 0)
        assert (replayed.kind, replayed.replay_of) == ("replay", compile.id)
    if name == "lowering_failure":
        assert ("failure", "lowering") in kinds(verdict)
        return
    assert {("output code", "codegen"), ("graph", "post_grad")} <= kinds(verdict)
    assert partitions(verdict) == ({"forward", "backward"} if name in TRAINED else {"inference"})


@pytest.mark.slow
@pytest.mark.parametrize("name", FROM_ATEN)
def test_a_replay_from_the_aten_graphs_is_identical(name: str, everything: Path) -> None:
    with Store.open(everything, write=True) as store:
        compile = compiles_of(store, name)[-1]
        verdict = replay(store, compile, "aot")
        assert (verdict.verdict, verdict.detail) == ("identical", "")
        codes = queries.output_codes(store, compile)
        compared = [row for row in verdict.compared if row.kind == "output code"]
        assert sum(row.identical for row in compared) == len(codes) > 0
        assert ("graph", "post_grad") in kinds(verdict)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded inference, to tamper with."""
    path = tmp_path_factory.mktemp("recorded") / "run.db"
    assert record(path, "tiny", **UNCACHED) == 0
    return path


def _tampered(path: Path, tmp_path: Path, change: tuple[bytes, bytes], table: str) -> Store:
    """A copy of the store in which one document says something else."""
    copy = tmp_path / "tampered.db"
    with Store.open(path) as store, Store.open(copy, create=True):
        pass
    copy.write_bytes(path.read_bytes())
    store = Store.open(copy, write=True)
    compile = compiles_of(store)[0]
    rows = {
        "checkpoints": queries.checkpoints(store, compile)[:1],
        "output_codes": queries.output_codes(store, compile)[:1],
        "graphs": [g for g in queries.graphs(store, compile) if g.stage == "post_grad"],
    }[table]
    before = store.read_blob(rows[0].digest)  # type: ignore[attr-defined]
    assert change[0] in before, "the test changes nothing"
    with store.writer() as writer:
        digest = writer.blob(before.replace(*change))
        writer.update(table, rows[0].id, digest=digest)  # type: ignore[attr-defined]
    return store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "change", "where"),
    [
        ("checkpoints", (b'"target":"sin"', b'"target":"cos"'), "graph"),
        ("output_codes", (b".sin()", b".cos()"), "output code"),
        (
            "graphs",
            (b'"op:aten.sin.default"', b'"op:aten.cos.default"'),
            "graph of stage post_grad",
        ),
    ],
)
def test_a_change_is_noticed_and_named(
    recorded: Path, tmp_path: Path, table: str, change: tuple[bytes, bytes], where: str
) -> None:
    with _tampered(recorded, tmp_path, change, table) as store:
        verdict = replay(store, compiles_of(store)[0])
        assert verdict.verdict == "diverged"
        assert where in verdict.detail
        assert verdict.difference
        assert verdict.exit_status == 1


@pytest.mark.slow
def test_what_came_from_a_cache_is_compared_by_its_code_and_said_so(tmp_path: Path) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    copy_probes(tmp_path / "cache", make=True)
    program = "torch.compile(lambda x: x.sin() + 1)(torch.randn(5))"
    record(tmp_path / "cold.db", "cached", source=program, **cache)
    found = {}
    for name, setting in (("AOTAutogradCache", "1"), ("FxGraphCache", "0")):
        path = tmp_path / f"{name}.db"
        record(path, "cached", source=program, **cache, TORCHINDUCTOR_AUTOGRAD_CACHE=setting)
        with Store.open(path, write=True) as store:
            found[name] = verdict = replay(store, compiles_of(store)[0])
        assert (verdict.verdict, verdict.detail) == ("identical", "")
        assert any(f"came from a cache ({name})" in note for note in verdict.notes)
    assert kinds(found["AOTAutogradCache"]) == {("output code", "codegen")}
    assert kinds(found["FxGraphCache"]) > {("output code", "codegen"), ("aot.metadata", "joint")}


def test_patterns_are_traced_where_the_compile_traced_them_in_any_dtype(tmp_path: Path) -> None:
    """Inductor makes the arguments of its patterns in the default dtype."""
    program = (
        "torch.set_default_dtype(torch.float64)\n"
        "f = torch.compile(lambda x: (x.softmax(0) + 1).sum())\n"
        "f(torch.randn(5, requires_grad=True))"
    )
    path = tmp_path / "float64.db"
    record(path, "float64", source=program, **UNCACHED)
    with Store.open(path, write=True) as store:
        (compile,) = compiles_of(store)
        patterns = {event.name for event in queries.events(store, compile, ProxyTrace.kind)}
        assert {name for name, _ in LIBRARIES.values()} <= patterns
        verdict = replay(store, compile)
    assert (verdict.verdict, verdict.detail) == ("identical", "")


def test_a_replay_never_says_identical_because_it_compared_nothing(
    recorded: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "empty.db"
    copy.write_bytes(recorded.read_bytes())
    with Store.open(copy, write=True) as store:
        compile = compiles_of(store)[0]
        with store.writer() as writer:
            for graph in queries.graphs(store, compile):
                writer.delete("graphs", graph.id)
            for code in queries.output_codes(store, compile):
                writer.delete("output_codes", code.id)
        verdict = replay(store, compile)
        things = [row for row in verdict.compared if row.kind in ("graph", "output code")]
        assert things
        assert not any(row.recorded or row.identical for row in things)
        assert verdict.verdict != "identical"


def test_what_cannot_be_replayed_is_refused_in_a_sentence(recorded: Path, tmp_path: Path) -> None:
    with Store.open(recorded) as store:
        compile = compiles_of(store)[0]
        with pytest.raises(UsageError, match="no entry"):
            replay(store, compile, "nothing")
    path = tmp_path / "dynamo.db"
    program = (
        "import torch._dynamo\n"
        "def fn(x):\n    if x.sum() > 0: return x\n    return -x\n"
        "torch.compile(fn, fullgraph=True)(torch.randn(3))"
    )
    assert record(path, "traced", source=program) != 0
    with (
        Store.open(path, write=True) as store,
        pytest.raises(UnsupportedError, match="while Dynamo traced"),
    ):
        replay(store, compiles_of(store)[0])


CONVERTED = """
from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapeVar, ShapesSpec, TensorSpec

rows = [torch.randn(n, 5) for n in (2, 3)]
jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
leaf = jagged.detach().requires_grad_()
for x in (leaf, jagged):
    torch.compile(lambda x: x * x, backend="aot_eager")(x)

n = ShapeVar("n", optimization_hint=7)
params = ParamsSpec({"x": TensorSpec([n * 2, None]), "y": TensorSpec([n, None])})
spec = ShapesSpec(params, assumptions=[n > 2])
specified = torch.compile(lambda x, y: x.sum(0) + y, backend="aot_eager", shapes_spec=spec)
specified(torch.ones(12, 4), torch.ones(6, 4))

x = torch.ones(8, 4)
torch._dynamo.mark_dynamic(x, 0, specialize_on=[lambda n: n == 8])
torch.compile(lambda x: x + x.shape[0], backend="aot_eager")(x)
"""


@pytest.mark.slow
def test_what_real_inputs_led_to_is_replayed_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "converted.db"
    assert record(path, "converted", source=CONVERTED) == 0
    with Store.open(path, write=True) as store, warm():
        compiles = compiles_of(store)
        leaf, view, specified, dynamic, special = (replay(store, compile) for compile in compiles)
        with pytest.raises(UnsupportedError, match="there is no frame"):
            replay(store, compiles[-1], "frame", trust=True)
        trusted = replay(store, compiles[2], trust=True)
    for verdict in (leaf, view, specified, dynamic, trusted):
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert ("proxies.node", "joint") in kinds(view)  # what comes after the conversion
    assert special.verdict == "refused"
    assert "specialize_on" in special.detail


FALLEN_BACK = """
def f(x, mask, weight):
    x = x * 2
    x[mask] = weight
    return x
weight = torch.randn(4, requires_grad=True)
torch.compile(f, backend="aot_eager")(torch.randn(3, 4), torch.tensor([True, False, True]), weight)
"""


@pytest.mark.slow
def test_a_backend_that_fails_and_lets_eager_mode_go_on_does_so_again(tmp_path: Path) -> None:
    """For Dynamo its exception is a graph break; a replay from the graph has no Dynamo."""
    path = tmp_path / "fallen.db"
    assert record(path, "fallen", source=FALLEN_BACK) == 0
    with Store.open(path, write=True) as store:
        (compile,) = compiles_of(store)
        assert queries.failure_of(store, compile) is None
        verdict = replay(store, compile)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert ("failure", "joint") in kinds(verdict)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM failures")
    with Store.open(path) as store:
        again = queries.compiles(store, queries.recordings(store)[-1].id)[0]
        question = Question(Point("graph"))
        found = compiles.compare(Side(store, compile), Side(store, again), question)
    assert "of the backend recorded, none replayed" in found.detail
    assert not found.agrees


@pytest.mark.slow
def test_a_compile_of_aot_inductor_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "aoti.db"
    program = (
        "import torch._inductor\n"
        "from torch._inductor.lowering import lowerings\n"
        "lowerings[torch.ops.aten.cos.default] = None  # so that no library has to be built\n"
        "class Cosine(torch.nn.Module):\n    def forward(self, x): return x.cos()\n"
        "x = (torch.randn(3),)\n"
        "torch._inductor.aot_compile(torch.export.export(Cosine(), x).module(), x)"
    )
    assert record(path, "ahead", source=program) != 0
    with Store.open(path, write=True) as store:
        compile = compiles_of(store)[-1]
        with pytest.raises(UnsupportedError, match="--entry aot"):
            replay(store, compile)
        verdict = replay(store, compile, "aot")
    assert (verdict.verdict, verdict.exit_status) == ("refused", 3)
    assert verdict.detail.startswith("this compile is AOTInductor's")


@pytest.mark.slow
def test_eagers_run_of_a_wrong_result_is_no_part_of_the_replay(tmp_path: Path) -> None:
    """Both are run and compared; what eager does there was in no event log."""
    path = tmp_path / "run.db"
    program = "torch.compile(lambda x: x.sin() + 1, backend='aot_eager')(torch.randn(5))"
    assert record(path, "plain", source=program) == 0
    with Store.open(path, write=True) as store:
        (compile,) = compiles_of(store)
        (checkpoint,) = queries.checkpoints(store, compile)
        add_failure(store, compile, wrong_result_signature("values"), "planted", checkpoint.id)
        verdict = replay(store, compile)
    assert verdict.detail == "the failure: wrong_result in stage run recorded, none replayed"
    assert [row.stage for row in verdict.compared if row.recorded != row.identical] == ["run"]


CONSTRAINED = """
import torch

x = torch.ones(8, 4)
torch._dynamo.mark_dynamic(x, 0)
torch.compile(lambda x: x + 1 if x.shape[0] == 8 else x, backend="aot_eager")(x)
"""


@pytest.mark.slow
def test_a_failure_of_guards_is_no_part_of_a_replay_from_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "constrained.db"
    assert record(path, "constrained", source=CONSTRAINED) == 1
    with Store.open(path, write=True) as store:
        (compile,) = compiles_of(store)
        failure = queries.failure_of(store, compile)
        assert failure is not None
        assert failure.stage == "guards"
        verdict = replay(store, compile)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert "failure" not in {row.kind for row in verdict.compared}
    assert any("ConstraintViolationError in stage guards" in note for note in verdict.notes)


def test_an_unknown_backend_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    program = "torch.compile(lambda x: x + 1, backend=lambda gm, _: gm.forward)(torch.randn(3))"
    assert record(path, "custom", source=program) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, compiles_of(store)[0])
    assert (verdict.verdict, verdict.exit_status) == ("refused", 3)
    assert "--import" in verdict.detail


def test_a_read_only_store_is_replayed_without_a_change(recorded: Path) -> None:
    before = recorded.read_bytes()
    recorded.chmod(0o444)
    try:
        with Store.open(recorded) as store:
            assert json.dumps(store.target)
    finally:
        recorded.chmod(0o644)
    assert recorded.read_bytes() == before

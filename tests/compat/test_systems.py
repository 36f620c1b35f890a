"""Each of the nineteen systems on the installed torch: recorded, replayed, its failure reduced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.programs import PLANTED, PROGRAMS, ROOT, record
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.recorder.catalogue import SYSTEMS
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile

NOTHING = Signature("exception", "lowering", message="nothing fails like this")
REPLAYED = [name for name, program in PROGRAMS.items() if not program.refused]
FAILING = [name for name, program in PROGRAMS.items() if program.failing]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """All programs as they are, recorded in one process."""
    path = record(tmp_path_factory.mktemp("recorded"), failing=False)
    with Store.open(path, write=True) as store:
        yield store


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """All programs with the backends that fail."""
    path = record(tmp_path_factory.mktemp("failed"), failing=True)
    with Store.open(path, write=True) as store:
        yield store


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerOracle]:
    """One warm worker for all reductions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # where the planted backends can be imported from
        oracle = WorkerOracle(NOTHING, imports=(PLANTED,))
    yield oracle
    oracle.close()


def compiles_of(store: Store, name: str) -> list[Compile]:
    """The compiles of a program, restarted attempts left out."""
    (program, *_) = queries.recordings(store)
    return [
        compile
        for compile in queries.compiles(store, program.id)
        if Path(compile.frame_file).stem == name and compile.status != "restarted"
    ]


def calls_of(graph: GraphDoc) -> tuple[str, ...]:
    """The functions that a graph and its bodies call, without their namespaces."""
    nodes = (node for node in graph.nodes if node.op.startswith("call_"))
    inner = (name for module in graph.modules.values() for name in calls_of(module))
    outer = (node.target.removesuffix(".default").rpartition(".")[2] for node in nodes)
    return (*outer, *inner)


def test_every_system_has_a_program() -> None:
    known = {system for program in PROGRAMS.values() for system in program.systems}
    assert known | {16} == set(range(1, len(SYSTEMS) + 1))


@pytest.mark.slow
def test_nothing_is_lost(recorded: Store, failed: Store) -> None:
    for store in (recorded, failed):
        (program, *_) = queries.recordings(store)
        assert queries.lost(store, program.id) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_system_is_recorded(name: str, recorded: Store) -> None:
    (program, *_) = queries.recordings(recorded)
    seen = {kind for kind in PROGRAMS[name].kinds if queries.events(recorded, program, kind)}
    assert seen == set(PROGRAMS[name].kinds)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLAYED)
def test_its_compile_is_replayed_identically(name: str, recorded: Store) -> None:
    program = PROGRAMS[name]
    found = [row for row in compiles_of(recorded, name) if queries.checkpoints(recorded, row)]
    assert found
    trust = program.entry == "frame"
    for compile in found:
        verdict = replay(recorded, compile, program.entry, trust=trust, imports=(PLANTED,))
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILING)
def test_its_failure_is_reduced(name: str, failed: Store, worker: WorkerOracle) -> None:
    (compile,) = (row for row in compiles_of(failed, name) if row.status == "failed")
    found = minify(failed, compile, options=MinifyOptions(imports=(PLANTED,)), oracle=worker)
    assert (found.status, calls_of(found.case.checkpoint.graph)) == (
        "fixpoint",
        PROGRAMS[name].minimum,
    )

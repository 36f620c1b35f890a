"""A store that gets through the rules for graphs, replayed and reduced: it does no harm.

The hole is `tests.sandbox.hole`, which is imported before the child confines itself.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.minifier.real import case_from
from tests.replay.programs import record
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro.check import check
from torchreel.replay import Verdict, replay
from torchreel.sandbox import missing
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature

pytestmark = pytest.mark.skipif(bool(missing()), reason="this kernel has no whole sandbox")

HOLE = "tests.sandbox.hole"
PROGRAM = "torch.compile(lambda x: x.sin(), backend='aot_eager')(torch.ones(3))"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.db"
    assert record(path, "sine", source=PROGRAM) == 0
    return path


@pytest.fixture
def outside(tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where canaries would show, with a store and a server that is listened to."""
    shutil.copy(recorded, tmp_path / "run.db")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        monkeypatch.setenv("HOLE_OUTSIDE", str(tmp_path))
        monkeypatch.setenv("HOLE_PORT", str(server.getsockname()[1]))
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield tmp_path
        with pytest.raises(BlockingIOError):
            server.accept()


def canaries(folder: Path) -> set[str]:
    names = {path.name for path in folder.iterdir()}
    return {name for name in names if not name.startswith("run.db")} - {"imported"}


def replayed(folder: Path, **options: bool) -> Verdict:
    with Store.open(folder / "run.db", write=True) as store:
        compile = queries.compiles(store, 1)[0]
        return replay(store, compile, imports=(HOLE,), **options)


@pytest.mark.slow
def test_what_gets_through_a_replay_does_no_harm(outside: Path) -> None:
    verdict = replayed(outside)
    assert verdict.verdict == "identical", verdict
    assert (outside / "imported").exists(), "the hole was not there"
    assert canaries(outside) == set()
    with Store.open(outside / "run.db") as store:
        (program, again) = queries.recordings(store)
        assert (again.kind, again.id) == ("replay", verdict.recording_id)
        assert again.replay_of == queries.compiles(store, program.id)[0].id
        assert {event.kind for event in queries.events(store, again)} >= {"inductor.config"} or (
            queries.events(store, again)
        )


@pytest.mark.slow
def test_a_replay_that_the_sandbox_denies_something_is_refused_and_says_so(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLE_RAISES", "1")
    verdict = replayed(outside)
    assert verdict.verdict == "refused"
    assert "the sandbox denied" in verdict.detail
    assert "--trust" in verdict.detail
    assert canaries(outside) == set()


@pytest.mark.slow
def test_with_trust_the_same_hole_does_harm(tmp_path: Path, recorded: Path) -> None:
    """So the canaries of the other tests are real ones."""
    shutil.copy(recorded, tmp_path / "run.db")
    shutil.copy(recorded, tmp_path / "kept.db")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HOLE_OUTSIDE", str(tmp_path))
        patch.setenv("HOLE_TRUSTED", "1")
        patch.setenv("HOLE_PORT", str(server.getsockname()[1]))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        with Store.open(tmp_path / "kept.db", write=True) as store:
            compile = queries.compiles(store, 1)[0]
            replay(store, compile, imports=(HOLE,), trust=True)
        server.settimeout(1)
        assert server.accept()[0].recv(6) == b"canary"
    found = canaries(tmp_path) - {"kept.db"}
    assert found >= {"written", "by_shell", "by_python", "by_c"}
    assert (tmp_path / "run.db").read_text() == "overwritten"


@pytest.mark.slow
def test_what_gets_through_a_reduction_does_no_harm(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Signature("exception", "lowering", message="nothing fails like this")
    case = case_from(torch.sin, torch.ones(3))
    with WorkerOracle(nothing, imports=(HOLE,)) as oracle:
        report = oracle.judge(case)
    assert (report.verdict, canaries(outside)) == ("none", set()), report
    assert (outside / "imported").exists(), "the hole was not there"


@pytest.mark.sampled
@pytest.mark.parametrize("error", ["PermissionError", "LoweringException"])
def test_a_candidate_that_hits_the_wall_never_counts(
    error: str, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the recorded failure was an error of permissions."""
    wanted = Signature("exception", "pre_grad", exception_types=(error,))
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("PLANTED_FILE", str(outside / "planted"))
    case = case_from(torch.sin, torch.ones(3), backend="planted_write")
    with WorkerOracle(wanted, imports=("tests.sandbox.planted_write",)) as oracle:
        report = oracle.judge(case)
    assert report.verdict == "unjudged", report
    assert "the sandbox denied" in report.detail
    assert canaries(outside) == set()


def test_the_check_of_a_repro_is_confined(outside: Path) -> None:
    wanted = Signature("exception", "lowering", exception_types=("PermissionError",))
    script = f"open({str(outside / 'written')!r}, 'w')"
    found = check(script, wanted)
    assert not found.holds
    assert "the sandbox denied" in found.detail
    assert canaries(outside) == set()
    trusted = check(script, wanted, trust=True)
    assert trusted.detail == "it ended without an error"
    assert canaries(outside) == {"written"}


def test_descriptors_of_the_parent_are_no_way_out(outside: Path) -> None:
    """Of what a child has open, nothing can be written that lies outside its folder."""
    script = """
import os
for name in sorted(os.listdir("/proc/self/fd")):
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
        flags = int(open(f"/proc/self/fdinfo/{name}").read().split()[3], 8)
    except OSError:
        continue
    here = os.path.dirname(os.getcwd())
    if flags & 3 and not target.startswith((here, "/dev/null", "pipe:", "/proc/")):
        raise ValueError(target)
"""
    wanted = Signature("exception", "lowering", exception_types=("ValueError",))
    found = check(script, wanted)
    assert found.detail == "it ended without an error", found.detail
    assert os.environ["HOLE_OUTSIDE"] == str(outside)

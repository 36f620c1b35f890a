"""Programs that are run under the recorder: how they end, and how they die."""

import signal
import sys
from pathlib import Path

import pytest

from tests.recorder import programs
from torchreel.errors import UsageError
from torchreel.recorder.launch import run_recorded
from torchreel.store import Store, queries

CRASH = """
import signal

@torch.library.custom_op("reel::deadly", mutates_args=())
def deadly(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGSEGV)
    return x.clone()

deadly.register_fake(torch.empty_like)
torch.compile(lambda x: deadly(x) @ x)(torch.ones(2, 2))
"""


@pytest.mark.slow
def test_a_crash_in_the_kernel_leaves_its_graph_and_its_stage(path: Path) -> None:
    assert programs.run(CRASH, path) == 128 + signal.SIGSEGV
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        (compile,) = queries.compiles(store, recording.id)
        (failure,) = queries.failures(store)
        checkpoints = queries.checkpoints(store, compile)
    assert (recording.status, recording.exit_signal) == ("died", "SIGSEGV")
    assert compile.status == "crashed"
    assert (failure.failure_class, failure.stage, failure.partition) == (
        "crash",
        "run",
        "inference",
    )
    assert failure.signature.signal == "SIGSEGV"
    assert [row.entry for row in checkpoints] == ["graph", "aot"]
    assert failure.checkpoint_id == checkpoints[-1].id


FORKS = """
import multiprocessing

def work():
    torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))

if __name__ == "__main__":
    torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode + 3)
"""


@pytest.mark.slow
def test_a_forked_process_has_a_recording_of_its_own(path: Path) -> None:
    assert programs.run(FORKS, path) == 3
    with Store.open(path) as store:
        parent, child = queries.recordings(store)
        compiles = [len(queries.compiles(store, row.id)) for row in (parent, child)]
    assert (parent.exit_status, child.exit_status) == (3, None)
    assert (parent.status, child.status) == ("done", "done")
    assert parent.run == child.run
    assert parent.pid != child.pid
    assert compiles == [1, 1]


def test_a_program_that_compiles_nothing(path: Path) -> None:
    assert run_recorded([sys.executable, "-c", "pass"], path) == 0
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        assert queries.compiles(store, recording.id) == []
    assert (recording.status, recording.exit_status) == ("done", 0)
    assert isinstance(recording.argv, list)
    assert recording.argv[0] == sys.executable


def test_a_program_that_ends_badly_and_compiles_nothing_leaves_nothing(path: Path) -> None:
    assert run_recorded([sys.executable, "-c", "import sys; sys.exit(5)"], path) == 5
    assert not path.exists()


def test_the_environment_of_the_program(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os; print(*(os.environ[k] for k in ('TORCHREEL', 'TORCHREEL_COMPILE_TIMEOUT')))"
    )
    assert run_recorded([sys.executable, "-c", program], path, compile_timeout=1.5) == 0
    assert capfd.readouterr().out == f"full:{path} 1.5\n"


def test_signals_reach_the_program(path: Path) -> None:
    program = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    assert run_recorded([sys.executable, "-c", program], path) == 128 + signal.SIGTERM


def test_what_can_not_be_run_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no program"):
        run_recorded([str(tmp_path / "missing")], path)
    with pytest.raises(UsageError, match="no mode 'half'"):
        run_recorded([sys.executable], path, mode="half")

"""Programs that are run under the recorder: how they end, and how they die."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
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


def test_a_program_has_the_descriptors_that_the_command_was_given(path: Path) -> None:
    """As in `torchreel record -- python program.py <(zcat data.gz)`."""
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    program = f"import os, sys; sys.exit(os.write({theirs}, b'here') - 4)"
    assert run_recorded([sys.executable, "-c", program], path) == 0
    os.close(theirs)
    assert os.read(ours, 9) == b"here"
    os.close(ours)


COUNTS = """
import os, pathlib, signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append("INT"))
signal.signal(signal.SIGQUIT, lambda *_: got.append("QUIT"))
signal.signal(signal.SIGTERM, lambda *_: got.append("TERM"))
pathlib.Path(sys.argv[1]).touch()
while "TERM" not in got:
    time.sleep(0.01)
time.sleep(0.3)
print(" ".join(got))
"""
LAUNCHES = """
import sys
from torchreel.recorder.launch import run_recorded
sys.exit(run_recorded([sys.executable, "-c", *sys.argv[2:]], sys.argv[1]))
"""


def test_what_a_terminal_sends_comes_once(path: Path, tmp_path: Path) -> None:
    """Also where the terminal is not stdin; what another process sends to us comes as well."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", LAUNCHES, str(path), COUNTS, str(ready)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(command[0], command)
    _wait_for(ready)
    for key in (b"\x03", b"\x1c"):  # Ctrl-C, Ctrl-\
        os.write(terminal, key)
        time.sleep(0.3)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
        time.sleep(0.3)
    said = b""
    with suppress(OSError):  # which is how the end of a terminal reads
        while data := os.read(terminal, 1000):
            said += data
    os.waitpid(pid, 0)
    assert b"INT QUIT INT TERM" in said


@pytest.mark.parametrize("ignored", [True, False])
def test_a_program_ignores_the_signals_that_it_would_without_us(path: Path, ignored: bool) -> None:
    program = "import signal, sys; sys.exit(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    command = [sys.executable, "-c", LAUNCHES, str(path), program]
    if ignored:
        command = ["nohup", *command]
    done = subprocess.run(command, capture_output=True, preexec_fn=_as_in_a_terminal)
    assert done.returncode == ignored


def _as_in_a_terminal() -> None:
    """Have a hang-up end the process, also where the tests themselves run under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_signals_reach_the_program_beside_other_threads(path: Path) -> None:
    """The kernel may give a signal to any of them: the main thread has to see it all the same."""
    text = """
import sys, threading
from torchreel.recorder.launch import run_recorded
threading.Thread(target=threading.Event().wait, daemon=True).start()
program = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(20)"
sys.exit(run_recorded([sys.executable, "-c", program], sys.argv[1]))
"""
    done = subprocess.run([sys.executable, "-c", text, str(path)])
    assert done.returncode == 128 + signal.SIGTERM


def _wait_for(file: Path) -> None:
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


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


LATE = """
import multiprocessing, sys

def work():
    import torch
    torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode + 3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_process_that_imports_torch_itself_ends_its_recording(path: Path, method: str) -> None:
    """Those of the first two methods end by `os._exit`, which runs no atexit."""
    program = path.with_name("late.py")
    program.write_text(LATE)
    assert run_recorded([sys.executable, str(program), method], path) == 3
    with Store.open(path) as store:
        found = [row for row in queries.recordings(store) if queries.compiles(store, row.id)]
        assert [row.status for row in found] == ["done"]
        assert [one.status for one in queries.compiles(store, found[0].id)] == ["ok"]


def test_a_file_named_like_a_module_of_python_is_not_executed(path: Path) -> None:
    """One that `import torch` alone does not import."""
    folder = path.parent
    (folder / "resource.py").write_text("raise SystemExit(7)")
    (folder / "program.py").write_text(
        "import torch; torch.compile(lambda x: x.cos(), backend='eager')(torch.ones(2))"
    )
    assert run_recorded([sys.executable, str(folder / "program.py")], path) == 0
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        assert len(queries.compiles(store, recording.id)) == 1


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

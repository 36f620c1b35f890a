"""The process dies, the disk fills up, the store disappears: what was committed stays; the program
ends as it would have ended."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

import torchreel
from benchmarks import kills
from tests.recorder import programs
from tests.recorder.conftest import RecordedLog
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.store import Store, queries
from torchreel.store.failures.signature import crash_signature

SAMPLED = pytest.mark.sampled


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "seed"), [("full", 1), ("flight", 2)])
def test_processes_killed_at_random_moments(tmp_path: Path, mode: str, seed: int) -> None:
    found = kills.run(tmp_path, 10, mode, seed)
    assert found.committed > 3, "the victims hardly compiled anything"
    assert (found.missing, found.broken) == (0, 0)
    assert found.statuses["crashed"] >= 1
    assert set(found.statuses) <= {"ok", "crashed", "restarted"}
    assert found.verdict in ("identical", "diverged"), "the replay did not even start"


DEADLY = """
def deadly(gm, inputs):
    {death}

print("before", flush=True)
torch.compile(lambda x: x.sin() + 1, backend=deadly)(torch.ones(2))
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mode", "death", "status", "recorded_signal"),
    [
        ("full", "import ctypes; ctypes.string_at(0)", 128 + signal.SIGSEGV, "SIGSEGV"),
        ("flight", "import ctypes; ctypes.string_at(0)", 128 + signal.SIGSEGV, "SIGSEGV"),
        ("flight", "os.kill(os.getpid(), 9)", 128 + signal.SIGKILL, "SIGKILL"),
        ("full", "os._exit(7)", 7, None),
    ],
)
def test_a_death_in_the_backend_leaves_its_graph(
    path: Path, mode: str, death: str, status: int, recorded_signal: str | None
) -> None:
    from torchreel.recorder.launch import run_recorded

    program = programs.PRELUDE + DEADLY.format(death=death)
    assert run_recorded([sys.executable, "-c", program], path, mode=mode) == status
    with Store.open(path) as store:
        log = RecordedLog(store)
        (checkpoint,) = queries.checkpoints(store, log.compile)
        doc = CheckpointDoc.from_bytes(store.read_blob(checkpoint.digest))
        (failure,) = queries.failures(store)
    assert [node.name for node in doc.graph.nodes] == ["l_x_", "sin", "add", "output"]
    assert (log.recording.status, log.recording.exit_signal) == ("died", recorded_signal)
    assert log.compile.status == "crashed"
    assert (failure.stage, failure.failure_class) == ("pre_grad", "crash")
    assert failure.checkpoint_id == checkpoint.id


DEADLY_TO_TRACE = """
@torch.library.custom_op("deadly::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@op.register_fake
def _(x):
    os.kill(os.getpid(), 9)

torch.compile(lambda x: op(x) + 1, backend="eager")(torch.ones(2))
"""


@pytest.mark.parametrize("mode", ["full", "flight"])
def test_a_death_while_dynamo_traces_leaves_its_frame(path: Path, mode: str) -> None:
    """The first compile is on disk before it goes on, however soon it ends."""
    from torchreel.recorder.launch import run_recorded

    program = programs.PRELUDE + DEADLY_TO_TRACE
    assert run_recorded([sys.executable, "-c", program], path, mode=mode) == 128 + signal.SIGKILL
    with Store.open(path) as store:
        log = RecordedLog(store)
        assert (log.recording.status, log.recording.exit_signal) == ("died", "SIGKILL")
        assert (log.compile.status, log.compile.frame_name) == ("crashed", "<lambda>")


DEADLY_TO_LOWER = """
import ctypes, time
from torch._inductor.lowering import register_lowering

@torch.library.custom_op("deadly::lowered", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

op.register_fake(torch.empty_like)

@register_lowering(torch.ops.deadly.lowered.default)
def lower(x):
    time.sleep({seconds})
    ctypes.string_at(0)

torch.compile(lambda x: op(x.sin()).cos())(torch.ones(2))
"""


@pytest.mark.parametrize(
    ("mode", "seconds"), [("full", 0), ("flight", 0), pytest.param("full", 1, marks=SAMPLED)]
)
def test_a_death_while_inductor_lowers_is_at_its_node(path: Path, mode: str, seconds: int) -> None:
    """The stage does not depend on how much of the event log had been written."""
    from torchreel.recorder.launch import run_recorded

    program = programs.PRELUDE + DEADLY_TO_LOWER.format(seconds=seconds)
    assert run_recorded([sys.executable, "-c", program], path, mode=mode) == 128 + signal.SIGSEGV
    with Store.open(path) as store:
        (failure,) = queries.failures(store)
    assert failure.signature == crash_signature("lowering", "inference", "SIGSEGV")
    assert failure.message == (
        "The process ended here, with SIGSEGV, while it lowered the node lowered."
    )


HUNGRY = """
import resource

def hungry(gm, inputs):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + {room}, -1))
    return bytearray(2 << 30)

try:
    torch.compile(lambda x: x.sin() + 1, backend=hungry)(torch.ones(2))
except Exception as error:
    print(type(error).__name__, type(error.inner_exception).__name__)
print(torch.ones(2).sum().item(), flush=True)
sys.exit(7)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("room", [1 << 16, 32 << 20])
@pytest.mark.parametrize("mode", ["full", "flight"])
def test_memory_that_is_used_up(path: Path, mode: str, room: int) -> None:
    """With room for nothing, not even a stack for a thread, and with some."""
    program = programs.PRELUDE + HUNGRY.format(room=room)
    environment = {**os.environ, **programs.ENVIRONMENT, "TORCHREEL": f"{mode}:{path}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (7, "BackendCompilerFailed MemoryError\n2.0\n")
    with Store.open(path) as store:
        log = RecordedLog(store)
        (checkpoint,) = queries.checkpoints(store, log.compile)
        doc = CheckpointDoc.from_bytes(store.read_blob(checkpoint.digest))
        failures = queries.failures(store)
    assert [node.name for node in doc.graph.nodes] == ["l_x_", "sin", "add", "output"]
    assert log.compile.status in ("failed", "crashed")
    if room > 1 << 20:
        assert [row.chain[-1]["type"] for row in failures] == ["MemoryError"]


TROUBLE = """
import shutil
{before}
total = 0.0
for n in range(5):
    torch._dynamo.reset()
    big = [float(i) for i in range(n * 20)]
    def fn(x):
        for value in big:
            x = x + value
        return x.sum()
    total += torch.compile(fn, backend="eager")(torch.ones(3)).item()
    if n == 2:
        {middle}
print("total", total, flush=True)
sys.exit(5)
"""
EXPECTED = sum(3 * (1 + sum(range(n * 20))) for n in range(5))


def outcome(
    store: Path,
    before: str = "pass",
    middle: str = "pass",
    wrap: tuple[str, ...] = (),
    mode: str = "full",
) -> tuple[int, str]:
    """Exit status and stdout of the program, recorded by the environment alone."""
    text = textwrap.dedent(TROUBLE).format(before=before, middle=middle)
    environment = {**os.environ, **programs.ENVIRONMENT, "TORCHREEL": f"{mode}:{store}"}
    done = subprocess.run(
        [*wrap, sys.executable, "-c", programs.PRELUDE + text],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


FINE = (5, f"total {float(EXPECTED)}\n")


@pytest.mark.slow
def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    assert outcome(tmp_path / "run.db", before=limit) == FINE
    assert_readable(tmp_path / "run.db")


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        assert outcome(disk / "run.db") == FINE
        assert_readable(disk / "run.db")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def assert_readable(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Store.open(path) as store:
        assert len(RecordedLog(store).compiles) >= 1


@pytest.mark.slow
def test_a_directory_that_may_not_be_written_to(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    wrap: tuple[str, ...] = ()
    if os.geteuid() == 0:  # for whom nothing is closed
        if shutil.which("setpriv") is None:
            pytest.skip("root writes everywhere")
        for parent in [closed, *closed.parents]:
            if str(parent).startswith("/tmp/"):
                parent.chmod(parent.stat().st_mode | 0o055)
        wrap = ("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")
    assert outcome(closed / "run.db", wrap=wrap) == FINE
    assert list(closed.iterdir()) == []


@pytest.mark.slow
def test_a_store_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    store = tmp_path / "there" / "run.db"
    assert outcome(store, middle=f"os.unlink({str(store)!r})") == FINE
    assert not store.exists()


@pytest.mark.slow
def test_a_directory_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    store = tmp_path / "there" / "run.db"
    assert outcome(store, middle=f"shutil.rmtree({str(store.parent)!r})", mode="flight") == FINE
    assert not store.exists()


def test_a_second_recorder_is_the_first(path: Path, tmp_path: Path) -> None:
    with torchreel.record(path) as first, torchreel.record(tmp_path / "other.db") as second:
        assert second is first
        assert torchreel.install(tmp_path / "third.db") is first
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["run.db"]
    with Store.open(path) as store:
        assert [row.status for row in RecordedLog(store).compiles] == ["ok"]


CROWD = """
import gc, torchreel
torch.set_num_threads(1)
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(3))  # what all of them need
# A collection of all that torch has made takes 0.3 s, in which no thread of the process goes on,
# not even one that has the lock; eight of them on two processors would make it two seconds.
gc.freeze()
crowd = []
for number in range(8):
    crowd.append(os.fork())
    if crowd[-1] == 0:
        torchreel.install(sys.argv[1], sys.argv[2])
        for n in range(5):
            torch._dynamo.reset()
            f = torch.compile(lambda x, n=n: (x * n).sin() + number, backend="aot_eager")
            f(torch.ones(3))
        sys.exit()
sys.exit(any([os.waitpid(process, 0)[1] for process in crowd]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "flight"])
def test_eight_processes_write_into_one_file(path: Path, mode: str) -> None:
    environment = {**os.environ, **programs.ENVIRONMENT}
    command = [sys.executable, "-c", programs.PRELUDE + CROWD, str(path), mode]
    crowd = subprocess.Popen(command, env=environment)
    waited = _longest_lock(path, crowd)
    assert crowd.wait() == 0
    with Store.open(path) as store:
        recordings = queries.recordings(store)
        assert len(recordings) == 8
        assert {row.status for row in recordings} == {"done"}
        for row in recordings:
            # On a busy machine a program may go on before its rows are on disk: there they come.
            lost = {loss.reason for loss in queries.lost(store, row.id)}
            assert lost <= {"not committed in time"}
            compiles = queries.compiles(store, row.id)
            assert [c.status for c in compiles] == ["ok"] * 5
            if mode == "full":
                assert all(len(queries.checkpoints(store, c)) == 1 for c in compiles)
    assert waited < 1.0, f"the file was locked for {waited:.1f} s"


def _longest_lock(path: Path, crowd: subprocess.Popen[bytes]) -> float:
    """The longest that one of them had the lock, in seconds, as a ninth writer sees it.

    Measured in tries of 20 ms each, so that a machine that is busy otherwise counts less; they
    begin anew when somebody has committed, for then somebody else has the lock.
    """
    longest = 0.0
    while crowd.poll() is None:
        time.sleep(0.1)
        if not path.exists():
            continue
        tries, version = 0, None
        with closing(sqlite3.connect(path, timeout=0.02, isolation_level=None)) as connection:
            while tries < 200:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                    break
                except sqlite3.OperationalError:
                    before, version = version, connection.execute("PRAGMA data_version").fetchone()
                    tries = tries + 1 if version == before else 0
                longest = max(longest, tries * 0.02)
    return longest

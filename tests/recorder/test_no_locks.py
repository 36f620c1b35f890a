"""A file system without locks, or one that other machines see: each process writes its own file.

The file system is a real one; what refuses to lock is a library between the process and libc, so
that SQLite itself finds no locks.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.recorder import programs
from tests.recorder.conftest import RecordedLog
from torchreel.errors import LockedStore
from torchreel.recorder.launch import run_recorded
from torchreel.store import Store, queries
from torchreel.store.files import locks

REFUSING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

static int call(const char *name, int file, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
    return real(file, command, argument);
}

#define FORWARD(name) \\
    int name(int file, int command, ...) { \\
        va_list rest; \\
        va_start(rest, command); \\
        void *argument = va_arg(rest, void *); \\
        va_end(rest); \\
        return call(#name, file, command, argument); \\
    }
FORWARD(fcntl)
FORWARD(fcntl64)
"""

COMPILES = """
f = torch.compile(lambda x: x.sin() + 1, backend="eager")
f(torch.ones(3))
{end}
"""


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which nothing can be locked."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler, and LD_PRELOAD")
    folder = tmp_path_factory.mktemp("library")
    (folder / "refuse.c").write_text(REFUSING)
    library = folder / "refuse.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "refuse.c"), "-ldl"]
    subprocess.run(command, check=True)
    return {**os.environ, **programs.ENVIRONMENT, "LD_PRELOAD": str(library)}


def run(path: Path, refusing: dict[str, str], rank: str = "", end: str = "") -> tuple[int, int]:
    """Record a program where there are no locks; its process id and exit status."""
    text = programs.PRELUDE + COMPILES.format(end=end)
    environment = {**refusing, "TORCHREEL": f"full:{path}"} | ({"RANK": rank} if rank else {})
    process = subprocess.Popen([sys.executable, "-c", text], env=environment)
    return process.pid, process.wait(120)


def torchreel(refusing: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from torchreel.cli import main; main()", *arguments]
    return subprocess.run(command, env=refusing, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_each_process_writes_its_own_file(path: Path, refusing: dict[str, str]) -> None:
    first, status = run(path, refusing)
    second, other = run(path, refusing, rank="3")
    third, killed = run(path, refusing, end="os.kill(os.getpid(), 9)")
    assert (status, other, killed) == (0, 0, -signal.SIGKILL)
    names = [f"run.pid{first}.db", f"run.rank3-pid{second}.db", f"run.pid{third}.db"]
    assert {file.name for file in path.parent.glob("*.db")} == set(names)
    for name, expected in zip(names, ("done", "done", "died"), strict=True):
        with Store.open(path.with_name(name)) as store:
            log = RecordedLog(store)
            # A process that is killed at once may not have said that its compile was over.
            assert {row.status for row in log.compiles} <= {"ok"} | (
                {"crashed"} if expected == "died" else set()
            )
            assert len(log.compiles) == 1
            assert log.recording.status == expected
            assert queries.environment(store, 1)[locks.INSTEAD_OF] == "run.db"
        with closing(sqlite3.connect(path.with_name(name))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
def test_the_commands_say_so(path: Path, refusing: dict[str, str]) -> None:
    """Also where there are no locks to read under, and of a file whose log was left behind."""
    pid, _ = run(path, refusing, end="os.kill(os.getpid(), 9)")
    own = path.with_name(f"run.pid{pid}.db")
    assert Path(f"{own}-wal").exists()
    listed = torchreel(refusing, "ls", str(own))
    assert listed.returncode == 0, listed.stderr
    assert "<lambda>" in listed.stdout
    assert "run.db could not be shared between processes" in listed.stderr
    missing = torchreel(refusing, "ls", str(path))
    assert missing.returncode == 3
    assert f"each wrote a file of its own. Name one: {own}." in missing.stderr


@pytest.mark.slow
def test_record_says_where_it_went(path: Path, refusing: dict[str, str]) -> None:
    program = programs.PRELUDE + COMPILES.format(end="sys.exit(7)")
    done = torchreel(refusing, "record", "-o", str(path), "--", sys.executable, "-c", program)
    assert done.returncode == 7, done.stderr
    (own,) = path.parent.glob("*.db")
    assert own.name.startswith("run.pid")
    assert f"a process wrote {own}" in done.stderr


def test_such_a_store_is_not_written_to_by_commands(path: Path, refusing: dict[str, str]) -> None:
    Store.open(path, create=True).close()
    program = f"from torchreel.store import Store; Store.open({str(path)!r}, write=True)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=refusing, capture_output=True, text=True
    )
    assert LockedStore.__name__ in done.stderr
    assert "Copy it to a local disk" in done.stderr


MOUNTS = """
22 27 0:21 / / rw - ext4 /dev/vda rw
31 22 0:40 / /data rw,relatime shared:9 - nfs4 server:/export rw
32 31 0:41 / /data/local\\040disk rw - xfs /dev/sdb rw
33 22 0:42 / /datasets rw - overlay overlay rw
broken
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/data", "nfs4"), ("/data/run/deep", "nfs4"), ("/data/local disk/x", "xfs"),
        ("/datasets", "overlay"), ("/elsewhere", "ext4"),
    ],
)  # fmt: skip
def test_the_type_of_a_file_system(
    directory: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_existing", lambda path: path)
    assert locks.type_of(Path(directory), MOUNTS) == kind
    assert locks.type_of(Path(directory), "") == ""


@pytest.mark.slow
def test_on_a_network_each_rank_has_its_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert locks.own_file(str(path), 2) == str(path)
    monkeypatch.setattr(locks, "_mounts", lambda: "1 0 0:1 / / rw - nfs4 server:/ rw")
    assert locks.own_file(str(path), None) == str(path)
    assert locks.own_file(str(path), 2) == str(path.with_name("run.rank2.db"))
    assert locks.own_file(str(tmp_path / "x-rank2.db"), 2) == str(tmp_path / "x-rank2.db")
    assert locks.own_file("postgresql://host/db", 2) == "postgresql://host/db"
    monkeypatch.setenv("RANK", "2")
    command = [sys.executable, "-c", programs.PRELUDE + COMPILES.format(end="")]
    # The program itself looks at the real mounts, and shares the store.
    assert run_recorded(command, path) == 0
    with Store.open(path) as store:
        assert RecordedLog(store).recording.rank == 2
        assert locks.INSTEAD_OF not in queries.environment(store, 1)

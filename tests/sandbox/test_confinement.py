"""A confined process, with and without: what it must not do is tried for real."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox import attempts
from torchreel.sandbox import filesystem, missing, system_calls

pytestmark = pytest.mark.skipif(bool(missing()), reason="this kernel has no whole sandbox")

ROOT = str(Path(__file__).parents[2])
DONE, DENIED = 0, 13


@dataclass(frozen=True)
class World:
    """What a process could do harm to, and a terminal."""

    folder: Path
    outside: Path
    home: Path
    port: int
    terminal: int

    def run(self, name: str, confine: str) -> int:
        """Try a thing in a process of its own; its exit status."""
        arguments = [name, confine, str(self.folder), str(self.outside), str(self.port)]
        return self.python([attempts.__file__, *arguments]).returncode

    def python(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": ROOT, "HOME": str(self.home)},
            stdin=self.terminal,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    folder, outside, home = tmp_path / "folder", tmp_path / "outside", tmp_path / "home"
    for path in (folder, outside, home):
        path.mkdir()
    (outside / "store.db").write_text("precious")
    (home / "secret").write_text("precious")
    (folder / "link").symlink_to(outside / "store.db")
    master, slave = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        before = Path.cwd()
        os.chdir(outside)  # the name of a socket is a hundred characters at most
        local.bind("socket")
        os.chdir(before)
        local.listen()
        yield World(folder, outside, home, server.getsockname()[1], slave)


# Where the test itself may not, as without root, nothing is shown.
PRIVILEGED = {"type_into_terminal", "type_into_terminal_by_a_large_number", "trace_parent"}


@pytest.mark.parametrize("name", attempts.NAMES)
def test_what_is_denied(name: str, world: World) -> None:
    confined = world.run(name, "yes")
    assert confined == DENIED
    assert (world.outside / "store.db").read_text() == "precious"
    assert sorted(path.name for path in world.outside.iterdir()) == ["socket", "store.db"]
    free = world.run(name, "no")
    if free != DONE and (name in PRIVILEGED or os.getuid()):
        pytest.skip("not even without the sandbox")
    assert free == DONE


PROGRAMS = [
    *("start_true", "start_shell", "start_python", "replace_process", "fork_and_start"),
    *("spawn", "start_from_memory", "start_by_descriptor"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_right_to_compile_is_no_right_to_start_other_programs(name: str, world: World) -> None:
    assert world.run(name, "compiler") == DENIED


def test_what_is_allowed(world: World) -> None:
    script = f"""
import ctypes, os, signal, socket, subprocess, tempfile, threading
from pathlib import Path
from torchreel import sandbox
folder = Path({str(world.folder)!r})
assert sandbox.confine(sandbox.Confinement(folder, sandbox.cpp_compiler())) == []
assert Path({str(world.outside / "store.db")!r}).read_text() == "precious"
(folder / "a").write_text("x")
(folder / "b").mkdir()
(folder / "a").rename(folder / "b" / "c")
Path("/dev/null").write_text("x")
assert Path(tempfile.mkdtemp()).parent == folder
source = folder / "f.cpp"
source.write_text('#include <vector>\\n'
    'extern "C" int f() {{ return std::vector<int>(42).size(); }}')
subprocess.run(["g++", "-shared", "-fPIC", "-fopenmp", "-o", folder / "f.so", source], check=True)
assert ctypes.CDLL(str(folder / "f.so")).f() == 42
thread = threading.Thread(target=os.getpid); thread.start(); thread.join()
pid = os.fork()
if pid == 0:
    signal.pause()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
one, other = socket.socketpair()
one.send(b"x"); assert other.recv(1) == b"x"
import json, sqlite3
sqlite3.connect(folder / "store.db").execute("CREATE TABLE t (x)")
"""
    done = world.python(["-c", script])
    assert done.returncode == 0, done.stderr


def test_a_program_that_the_loader_starts_is_confined(world: World) -> None:
    """The compiler needs the loader, which starts anything that can be read."""
    script = f"""
import subprocess
from pathlib import Path
from torchreel import sandbox
sandbox.confine(sandbox.Confinement(Path({str(world.folder)!r}), sandbox.cpp_compiler()))
loader = str(sandbox.cpp_compiler()[-1])
command = "echo x > {world.folder}/done; echo x > {world.outside}/new"
print(subprocess.run([loader, "/bin/sh", "-c", command]).returncode)
"""
    done = world.python(["-c", script])
    assert (world.folder / "done").exists(), done.stderr
    assert not (world.outside / "new").exists()


THREADS = """
import socket, threading
from pathlib import Path
from torchreel import sandbox
from torchreel.errors import UnsupportedError
from torchreel.sandbox import system_calls
found, go = [], threading.Event()
def attempt():
    go.wait()
    for each in (lambda: socket.socket(), lambda: Path({outside!r}, "new").write_text("x")):
        try:
            each()
            found.append("done")
        except PermissionError:
            found.append("denied")
thread = threading.Thread(target=attempt)
thread.start()
try:
    {step}
except UnsupportedError as error:
    found.append("refused" if "1 other threads" in str(error) else str(error))
go.set()
thread.join()
print(*found)
"""


def test_a_thread_that_was_there_is_confined_or_nothing_is_run(world: World) -> None:
    step = f"sandbox.confine(sandbox.Confinement(Path({str(world.folder)!r})))"
    done = world.python(["-c", THREADS.format(outside=str(world.outside), step=step)])
    if filesystem.abi() < 8:
        assert done.stdout.split()[0] == "refused", done.stderr
    else:
        assert done.stdout.split() == ["denied", "denied"], done.stderr


def test_the_filter_reaches_a_thread_that_was_there(world: World) -> None:
    step = "sandbox.confinement._give_up_privileges(); "
    step += "system_calls.restrict(programs=False, signals=True)"
    done = world.python(["-c", THREADS.format(outside=str(world.outside), step=step)])
    assert done.stdout.split() == ["denied", "done"], done.stderr


def test_signals_are_held_back_without_landlock_too(world: World) -> None:
    script = """
import os, signal
from torchreel.sandbox import confinement, system_calls
confinement._give_up_privileges()
system_calls.restrict(programs=False, signals=False)
os.kill(os.getpid(), 0)
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    print("denied")
"""
    assert world.python(["-c", script]).stdout == "denied\n"


def test_the_python_environment_in_a_home_can_be_read(world: World) -> None:
    packages = world.home / "venv" / "lib"
    packages.mkdir(parents=True)
    (packages / "mine.py").write_text("VALUE = 42")
    script = f"""
import sys
from pathlib import Path
from torchreel import sandbox
sys.path += [{str(packages)!r}, {str(world.home)!r}]
sandbox.confine(sandbox.Confinement(Path({str(world.folder)!r})))
import mine
print(mine.VALUE)
Path({str(world.home / "secret")!r}).read_text()
"""
    done = world.python(["-c", script])
    assert done.stdout == "42\n"
    assert "PermissionError" in done.stderr


def test_the_numbers_are_those_of_the_kernel() -> None:
    import re

    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    generic = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists() or not generic.exists():
        pytest.skip("no headers of the kernel here")
    mine = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    theirs = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", generic.read_text()))
    for name, (x86, arm) in system_calls.NUMBERS.items():
        assert x86 == int(mine.get(name, x86 or 0)), name
        assert arm is None or arm == int(theirs.get(name, arm)), name


def test_a_file_that_goes_while_the_rules_are_made_is_left_out(world: World) -> None:
    script = f"""
from pathlib import Path
from torchreel import sandbox
from torchreel.sandbox import filesystem
gone = Path({str(world.outside / "gone")!r})
before = filesystem.readable
filesystem.readable = lambda: [gone, *before()]
assert sandbox.confine(sandbox.Confinement(Path({str(world.folder)!r}))) == []
"""
    done = world.python(["-c", script])
    assert (done.returncode, done.stderr) == (0, "")

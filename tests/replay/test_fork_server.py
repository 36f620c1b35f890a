"""Children that are forked from a warm process are what children of their own would be."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchreel.replay.processes import fork_server
from torchreel.replay.processes.fork_server import ERRORS, REQUEST, Child, forked, warm

PROGRAM = """
import json, os, signal, sys
request = json.load(sys.stdin)
print("this is not for the other end")
print(json.dumps({
    "name": __name__, "main": sys.modules["__main__"].__dict__ is globals(), "cwd": os.getcwd(),
    "path": sys.path[0], "argv": sys.orig_argv[1:], "seed": os.environ.get("SEED"),
    "torch": "torch" in sys.modules, "inductor": "torch._inductor.compile_fx" in sys.modules,
    "parent": os.getppid(), "threads": len(os.listdir("/proc/self/task")),
}), file=sys.stderr)
exec(request)
"""


@pytest.fixture(autouse=True)
def _of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from the warm processes of the other tests."""
    monkeypatch.setattr(fork_server, "_servers", fork_server._ForkServers())


def child(folder: Path, request: str, **variables: str) -> Child | None:
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / REQUEST).write_text(f'"{request}"')
    return forked(sys.executable, "program", {**os.environ, **variables}, str(folder))


def told(folder: Path) -> dict[str, object]:
    import json

    first = (folder / ERRORS).read_text().splitlines()[0]
    return dict(json.loads(first))


def test_outside_of_warm_there_is_none(tmp_path: Path) -> None:
    assert child(tmp_path / "a", "") is None


@pytest.mark.slow
def test_a_child_is_as_one_of_its_own(tmp_path: Path) -> None:
    with warm():
        one = child(tmp_path / "a", "sys.exit(7)", SEED="1")
        assert one is not None
        assert one.wait(60) == 7
        seen = told(tmp_path / "a")
        folder = str(tmp_path / "a")
        expected = {
            "name": "__main__", "main": True, "cwd": folder, "path": folder,
            "argv": ["-m", "program"], "seed": "1", "torch": True, "inductor": True, "threads": 1,
        }  # fmt: skip
        assert {key: seen[key] for key in expected} == expected

        # Nothing is imported from a directory in which anybody may write.
        assert Path(f"/proc/{seen['parent']}/cwd").readlink() == Path("/")

        # Others of the same kind come from the same process, whatever became of the first.
        killed = child(tmp_path / "b", "os.kill(os.getpid(), signal.SIGSEGV)", SEED="1")
        assert killed is not None
        assert killed.wait(60) == -signal.SIGSEGV
        failed = child(tmp_path / "c", "raise ValueError(3)", SEED="1")
        assert failed is not None
        assert failed.wait(60) == 1
        assert (tmp_path / "c" / ERRORS).read_text().strip().endswith("ValueError: 3")
        parent = seen["parent"]
        assert told(tmp_path / "b")["parent"] == told(tmp_path / "c")["parent"] == parent

        # One that hangs is waited for no longer than asked.
        hung = child(tmp_path / "d", "signal.pause()", SEED="1")
        assert hung is not None
        with pytest.raises(subprocess.TimeoutExpired):
            hung.wait(0.5)
        os.killpg(hung.pid, signal.SIGKILL)
        assert hung.wait(60) == -signal.SIGKILL

        # A fork server that was killed has no children any more: they get a process of their own.
        os.kill(int(str(parent)), signal.SIGKILL)
        time.sleep(0.2)
        assert child(tmp_path / "e", "", SEED="1") is None
        again = child(tmp_path / "f", "", SEED="1")
        assert again is not None
        assert again.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(told(tmp_path / "f")["parent"])), 0)

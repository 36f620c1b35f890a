"""What a replay may take: time, memory, and a parent that is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.replay.programs import record
from tests.sandbox.test_processes import ended
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings
from torchreel.replay import replay
from torchreel.replay.processes.launch import DEFAULT_TIMEOUT, TIMED_OUT
from torchreel.store import queries
from torchreel.store.database import Store

ROOT = Path(__file__).parents[2]
PLANTED = "tests.minifier.planted"
HANGS = f"""
import os, sys, threading
sys.path.insert(0, {str(ROOT)!r})
import torch
import {PLANTED}
threading.Timer(15, os._exit, [1]).start()
torch.compile(lambda x: torch.cos(x), backend="planted_ends")(torch.ones(4))
"""
PROGRAM = "torch.compile(lambda x: x.sin(), backend='aot_eager')(torch.ones(3))"
SLOW = """
import os, time
from torch._dynamo.backends.debugging import eager
from torch._dynamo.backends.registry import register_backend
def slow_later(graph, inputs):
    time.sleep(float(os.environ.get("SLOW_LATER", "0")))
    return eager(graph, inputs)
register_backend(slow_later)
"""
SLOW_PROGRAM = """
import torch, slow
torch.compile(lambda x: x.sin(), backend="slow_later")(torch.ones(3))
"""
WARM = """
import os, sys
from pathlib import Path
from torchreel.replay.processes.fork_server import forked, warm
folder = Path(sys.argv[1])
(folder / "program.py").write_text("import time; time.sleep(600)")
(folder / "request.json").write_text("")
with warm():
    child = forked(sys.executable, "program", dict(os.environ), str(folder))
    print(child.pid, flush=True)
    child.wait()
"""


@pytest.mark.slow
def test_a_hang_ends_at_the_recorded_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is identical to the recorded one: neither half of the time limit nor all of it is up."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    run_recorded([sys.executable, "-c", HANGS], tmp_path / "run.db", compile_timeout=3.0)
    with Store.open(tmp_path / "run.db", write=True) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        assert compile.status == "hung"
        began = time.monotonic()
        verdict = replay(store, compile, imports=(PLANTED,))
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
        assert time.monotonic() - began < DEFAULT_TIMEOUT / 4


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["graph", "frame"])
def test_a_replay_that_is_too_slow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """What it did before its time limit is compared; the rest is not called a difference."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(SLOW_PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, str(tmp_path / "program.py")]
    settings = Settings(frames="all")
    assert run_recorded(command, tmp_path / "run.db", settings=settings) == 0
    monkeypatch.setenv("SLOW_LATER", "600")
    with Store.open(tmp_path / "run.db", write=True) as store:
        compile = queries.compiles(store, 1)[0]
        verdict = replay(store, compile, entry, imports=("slow",), trust=True, timeout=20.0)
        assert (verdict.verdict, verdict.detail) == ("refused", TIMED_OUT)


@pytest.mark.slow
def test_too_much_memory_is_refused(tmp_path: Path) -> None:
    """With the option that gives it more."""
    assert record(tmp_path / "run.db", "sine", source=PROGRAM) == 0
    with Store.open(tmp_path / "run.db", write=True) as store:
        compile = queries.compiles(store, 1)[0]
        verdict = replay(store, compile, memory=64 << 20)
        assert verdict.verdict == "refused"
        assert "--memory" in verdict.detail


def test_a_child_of_a_warm_process_ends_with_the_command(tmp_path: Path) -> None:
    """Though its parent is the warm process, which ends as well."""
    command = [sys.executable, "-c", WARM, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        status = Path(f"/proc/{child}/status").read_text()
        (parent,) = [int(line.split()[1]) for line in status.splitlines() if "PPid" in line]
        os.kill(process.pid, signal.SIGKILL)
        assert ended(child)
        assert ended(parent)

"""Starts the child of a replay and settles what it left behind.

Lives here: the child's environment, time limit and end.  Not here: what it does (`child`), what the
result means (`replay`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from platformdirs import user_cache_path

from torchreel.replay import child
from torchreel.replay.child import Report, Request
from torchreel.replay.facts import Facts, variables
from torchreel.replay.frame_child import Report as FrameReport
from torchreel.replay.frame_child import Request as FrameRequest
from torchreel.store import queries
from torchreel.store.database import Store

DEFAULT_TIMEOUT = 600.0  # seconds; a compile that takes longer wants --timeout


@dataclass(frozen=True)
class Ended:
    """How a child ended, and the recording it made (None when it made none)."""

    report: Report | FrameReport | None
    status: int
    timed_out: bool
    errors: str
    recording_id: int | None


def launch(
    request: Request | FrameRequest, timeout: float = DEFAULT_TIMEOUT, program: ModuleType = child
) -> Ended:
    """Run the child `program`; afterwards its recording is settled, however it ended."""
    with tempfile.TemporaryDirectory(prefix="torchreel-replay-") as folder:
        process = subprocess.Popen(
            [getattr(request, "python", "") or sys.executable, "-m", program.__name__],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd=folder, env=_environment(request), start_new_session=True,
        )  # fmt: skip
        errors, timed_out = _wait(process, json.dumps(asdict(request)), timeout)
        recording = _settle(request, process.pid, process.returncode)
        report = _read(request.report, program)
        return Ended(report, process.returncode, timed_out, errors, recording)


def _environment(request: Request | FrameRequest) -> dict[str, str]:
    """The child's variables: a cache directory that is not the user's, no settings."""
    kept = {key: value for key, value in os.environ.items() if not _is_setting(key)}
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **kept,
        **variables(Facts(**request.facts)),
        "PYTHONPATH": path,
        # Our own directory, kept: the probing of vector instructions is compiled once a machine.
        "TORCHINDUCTOR_CACHE_DIR": str(user_cache_path("torchreel") / "inductor"),
    }


def _is_setting(key: str) -> bool:
    """Variables that would change the compile: what was recorded is imposed instead."""
    return key.startswith(
        ("TORCHREEL", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "TORCH_TRACE", "ATEN_CPU_")
    )


def _wait(child: subprocess.Popen[str], text: str, timeout: float) -> tuple[str, bool]:
    try:
        return child.communicate(text, timeout=timeout)[1], False
    except subprocess.TimeoutExpired:
        _kill(child)
        return child.communicate()[1], True
    except BaseException:
        _kill(child)
        raise


def _kill(child: subprocess.Popen[str]) -> None:
    """End the child and the compilers that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()


def _read(path: str, program: ModuleType) -> Report | FrameReport | None:
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None
    return program.parse(data) if isinstance(data, Mapping) else None


def _settle(request: Request | FrameRequest, pid: int, status: int) -> int | None:
    """Write down how the child ended; the id of its recording."""
    with Store.open(request.store, write=True) as store:
        mine = [
            row
            for row in queries.recordings(store)
            if row.pid == pid and row.kind == "replay" and row.replay_of == request.replay_of
        ]
        if not mine:
            return None
        name = signal.Signals(-status).name if status < 0 else None
        ended = mine[-1].ended_ns or time.time_ns()
        columns = {"exit_status": max(status, 0) or (128 - status if status < 0 else 0)}
        with store.writer() as writer:
            writer.update("recordings", mine[-1].id, exit_signal=name, ended_ns=ended, **columns)
        store.settle()
        return mine[-1].id

"""Starts the child of a replay and settles what it left behind.

Lives here: the child's environment, its limits of time and memory, and its end.  Not here: what it
does (`child`), what the result means (`replay`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Literal

from platformdirs import user_cache_path

from torchreel import sandbox
from torchreel.errors import StoreError, UnreadableSource
from torchreel.replay.child import checkpoint_child
from torchreel.replay.child.checkpoint_request import Report, Request
from torchreel.replay.child.frame_child import FrameReport, FrameRequest
from torchreel.replay.imposed.device import libraries
from torchreel.replay.imposed.facts import Facts, variables
from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.replay.processes.fork_server import ERRORS, REQUEST, Child, forked
from torchreel.sandbox.processes import (
    available_memory,
    end_group,
    kill_group,
    named_parent,
    resident,
)
from torchreel.sandbox.remains import is_file
from torchreel.store import queries
from torchreel.store.copying import copy_recording
from torchreel.store.database import Store
from torchreel.store.post_mortem import settle

DEFAULT_TIMEOUT = 600.0  # seconds; a compile that takes longer wants --timeout
_POLL = 0.1  # seconds between two looks at a child's memory
_SHARE_OF_MEMORY = 0.8
_MOST_ERRORS = 1 << 20  # bytes of a child's last words that are read


TOO_LARGE = (
    "the replay took more memory than it may, which is most of what was free when it began; "
    "--memory gives it more"
)
TIMED_OUT = (
    "the replay was stopped at its time limit; all that it had done by then is identical; "
    "--timeout gives it more seconds"
)


@dataclass(frozen=True)
class ChildEnd:
    """The end of a child, and the recording that it made (None if it made none)."""

    report: Report | FrameReport | None
    status: int
    timed_out: bool
    too_large: bool
    """True if it took more memory than its limit."""
    errors: str
    recording_id: int | None


def launch(
    request: Request | FrameRequest,
    timeout: float = DEFAULT_TIMEOUT,
    program: ModuleType = checkpoint_child,
    memory: int | None = None,
) -> ChildEnd:
    """Run the child `program`; afterwards its recording is settled, however it ended.

    It may take `memory` bytes, by default most of what is free. Without trust the child is confined
    to a folder: it records there, and its recording is copied.
    """
    if getattr(request, "interactive", False):
        return _launch_here(request, program)
    with tempfile.TemporaryDirectory(prefix="torchreel-replay-") as folder:
        given = _confined(request, folder)
        Path(folder, REQUEST).write_text(json.dumps(asdict(given)))
        process = _start(given, program.__name__, folder)
        over = _wait(process, timeout, memory or default_memory())
        recording = _settled(request, given, process.pid, process.returncode or 0)
        report = _read(given.report, program)
        errors = sandbox.read_file(Path(folder, ERRORS), _MOST_ERRORS) or b""
        text = errors.decode("utf-8", "replace")
        status = process.returncode or 0
        return ChildEnd(report, status, over == "time", over == "memory", text, recording)


def _confined(request: Request | FrameRequest, folder: str) -> Request | FrameRequest:
    """Return the request for a child, changed so that an untrusted one writes to `folder` alone.

    A trusted one records into a file in `folder` if the store is on a server.
    """
    own = str(Path(folder, "replay.db"))
    if request.trust or not isinstance(request, Request):
        return replace(request, store=own) if "://" in request.store else request
    sandbox.warn_once()
    copy_probes(Path(folder, "inductor"), make=request.compile_cpp)
    # Inductor asks it for its version even where nothing is compiled.
    programs = sandbox.cpp_compiler()
    if request.facts.get("accelerator") is not None:
        libraries.prepare(Path(folder))
        programs += sandbox.gpu_compilers()
    return replace(
        request,
        folder=folder,
        store=own,
        report=str(Path(folder, "report.json")),
        programs=tuple(map(str, programs)),
    )


def _start(
    request: Request | FrameRequest, program: str, folder: str
) -> subprocess.Popen[bytes] | Child:
    """Return the child: forked from a warm process where there is one (`fork_server.warm`)."""
    python, environment = getattr(request, "python", "") or sys.executable, _environment(request)
    child = forked(python, program, environment, folder)
    if child is not None:
        return child
    with Path(folder, REQUEST).open("rb") as text, Path(folder, ERRORS).open("wb") as errors:
        return subprocess.Popen(
            [python, "-m", program], stdin=text, stdout=subprocess.DEVNULL, stderr=errors,
            cwd=folder, env=named_parent(environment), start_new_session=True,
        )  # fmt: skip


def _launch_here(request: Request | FrameRequest, program: ModuleType) -> ChildEnd:
    """Run the child on our own terminal, without a time limit; Ctrl-C is for it alone."""
    with tempfile.TemporaryDirectory(prefix="torchreel-replay-") as folder:
        given = _confined(request, folder)
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(asdict(given)))
        sys.stdout.flush()
        before = signal.signal(signal.SIGINT, lambda *_: None)  # a handler is not inherited
        try:
            process = subprocess.Popen(
                [*_command(given, program), str(path)],
                cwd=folder, env=named_parent(_environment(given)),
            )  # fmt: skip
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        recording = _settled(request, given, process.pid, status)
        return ChildEnd(_read(given.report, program), status, False, False, "", recording)


def _command(request: Request | FrameRequest, program: ModuleType) -> list[str]:
    python = getattr(request, "python", "") or sys.executable
    # Our package has imported the module by the time that it is run: runpy would say so.
    return [python, "-W", "ignore::RuntimeWarning:runpy", "-m", program.__name__]


def _environment(request: Request | FrameRequest) -> dict[str, str]:
    """Return the child's variables: a cache directory that is not the user's, no settings."""
    kept = {key: value for key, value in os.environ.items() if not _is_setting(key)}
    package = Path(__file__).resolve().parents[3]
    # Another interpreter has a torch of its own, which one beside our package would stand before.
    beside = bool(getattr(request, "python", "")) and (package / "torch").exists()
    paths = ["" if beside else str(package), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    # What NumPy starts threads with when it is imported: they could not be confined any more.
    alone = {} if request.trust else {"OPENBLAS_NUM_THREADS": "1"}
    return {
        **kept,
        **alone,
        **variables(Facts(**request.facts)),
        "PYTHONPATH": path,
        # Our own directory, kept: the probing of vector instructions is compiled once a machine.
        "TORCHINDUCTOR_CACHE_DIR": str(user_cache_path("torchreel") / "inductor"),
    }


def _is_setting(key: str) -> bool:
    """Return True for variables that would change the compile; the recorded values are imposed."""
    return key == "PYTHONHASHSEED" or key.startswith(
        ("TORCHREEL", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "TORCH_TRACE", "ATEN_CPU_")
    )


def default_memory() -> int:
    """Return the bytes that a child may take: most of what is free now."""
    return int(available_memory() * _SHARE_OF_MEMORY)


def _wait(
    child: subprocess.Popen[bytes] | Child, timeout: float, memory: int
) -> Literal["", "time", "memory"]:
    """Wait until the child has ended; return the limit that it exceeded, if it did."""
    deadline = time.monotonic() + timeout
    try:
        while True:
            left = max(0.0, deadline - time.monotonic())
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(min(left, _POLL))
                end_group(child.pid)
                return ""
            if resident(child.pid) > memory:
                return _ended(child, "memory")
            if not left:
                return _ended(child, "time")
    except BaseException:
        kill_group(child.pid)
        raise


def _ended(
    child: subprocess.Popen[bytes] | Child, over: Literal["time", "memory"]
) -> Literal["time", "memory"]:
    """End the child and the compilers that it started, for a limit."""
    kill_group(child.pid)
    child.wait()
    return over


def _read(path: str, program: ModuleType) -> Report | FrameReport | None:
    try:
        data = json.loads(sandbox.read_file(path) or b"")
    except ValueError:
        return None
    return program.parse(data) if isinstance(data, Mapping) else None


def _settled(
    request: Request | FrameRequest, given: Request | FrameRequest, pid: int, status: int
) -> int | None:
    """Write down how the child ended; return the id of its recording in the named store."""
    if given.store == request.store:
        return _settle(request, pid, status)
    if not is_file(given.store):
        return None
    with contextlib.ExitStack() as stack:
        try:  # whatever the child made of it; an error of the store that was named is the user's
            made = _settle(given, pid, status)
            own = stack.enter_context(Store.open(given.store))
        except StoreError:
            return None
        if made is None:
            return None
        store = stack.enter_context(Store.open(request.store, write=True))
        try:
            return copy_recording(own, made, store)
        except UnreadableSource:
            return None


def _settle(request: Request | FrameRequest, pid: int, status: int) -> int | None:
    """Write down how the child ended; return the id of its recording."""
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
        settle(store)
        return mine[-1].id

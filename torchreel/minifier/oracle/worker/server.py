"""The worker's own loop: answers tasks, each with a child that it forks and watches.

It imports torch and Inductor once, so that a case costs a fork and the compile itself, not ten
seconds of imports. It must never run a parallel region: the threads of OpenMP do not survive a
fork. A child that crashes, hangs or eats the memory takes nothing with it. Not here: the watch on a
child (`watch`), what a child runs (`oracle.child`), the other end (`oracle.worker_oracle`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

from torchreel import sandbox
from torchreel.minifier.cases.case import Case
from torchreel.minifier.hangs import stacks
from torchreel.minifier.oracle.protocol import (
    ChildReport,
    Task,
    TaskResult,
    entered_line,
    hello_line,
    parse_line,
)
from torchreel.minifier.oracle.worker.devices import HiddenDevices
from torchreel.minifier.oracle.worker.watch import ChildWatch, StackSamples
from torchreel.sandbox.processes import (
    adopt_orphans,
    die_with_parent,
    end_children,
    follow_parent,
    kill_group,
    private_channel,
)
from torchreel.store.documents.jsontypes import Json, parse_json

_TAIL = 2000  # bytes of a dead child's output that are kept
_LARGEST_FILE = 4 << 30  # bytes; a child that prints without end must not fill the disk

_devices = HiddenDevices()
_machine: dict[str, Json] = {}
"""The facts of the recorded GPUs, for a case that compiles for one."""


def main(arguments: list[str] | None = None) -> int:
    """Answer tasks from stdin until it ends."""
    parser = argparse.ArgumentParser(prog="torchreel-minifier-worker")
    parser.add_argument("--import", dest="imports", action="append", default=[])
    parser.add_argument("--trust", action="store_true", help="run cases that are code")
    parser.add_argument("--kernels", action="store_true", help="be ready to compile kernels")
    parser.add_argument("--control", type=int, help="a socket, over which slots come")
    parser.add_argument("--accelerator", type=Path, help="facts of the recorded machine's GPUs")
    options = parser.parse_args(arguments)
    follow_parent()
    gc.disable()  # nearly nothing of what is imported is garbage: a quarter of the time is saved
    if options.accelerator is not None:
        found = parse_json(options.accelerator.read_bytes())
        assert isinstance(found, Mapping), "`worker_oracle` wrote it"
        _machine.update(found)
    channel = private_channel()
    sys.path.insert(0, os.getcwd())
    for name in options.imports:
        importlib.import_module(name)
    channel.write(hello_line(_warm_up(options.imports, options.kernels, options.trust)))
    channel.close()
    _serve_each(socket.socket(fileno=options.control), options.trust)
    return 0


def _serve_each(control: socket.socket, trust: bool) -> None:
    """Fork a process for each slot that comes, as warm as this one, which only waits for more.

    A slot comes at the start, and in the place of one whose process was killed.
    """
    me = os.getpid()
    while numbers := socket.recv_fds(control, 1, 1)[1]:
        slot = socket.socket(fileno=numbers[0])
        if os.fork() == 0:
            die_with_parent(me)
            control.close()
            _serve(slot, trust)
            os._exit(0)
        slot.close()
        _wait_for_ended()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _wait_for_ended() -> None:
    """Reap the processes of slots that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(slot: socket.socket, trust: bool) -> None:
    """Answer the tasks of a slot, one after the other, until it is closed."""
    adopt_orphans()
    for line in slot.makefile("rb"):
        data = parse_line(line)
        if "cancel" not in data:  # of a task that had been answered already
            slot.sendall(_answer(data, slot, trust).to_line())


def _warm_up(imports: list[str], kernels: bool, trust: bool) -> Mapping[str, Json]:
    """Import and initialise what every case needs; returns what verdicts depend on."""
    from torchreel.minifier.oracle.child import code_generation
    from torchreel.minifier.oracle.worker import environment, warm_up

    _devices.hide()
    if not trust:  # what the sandbox asks of the kernel and of the compiler is kept
        sandbox.prepare()
        sandbox.cpp_compiler()
    code_generation.warm_up()
    warm_up.compile_once(kernels=kernels)
    if trust:
        warm_up.trace_once()
    gc.freeze()  # a collection in a child would copy every page of the parent
    gc.enable()
    return {
        **environment.facts(imports, confined=not trust),
        **({"accelerator": _machine} if _machine else {}),
    }


def _answer(data: Mapping[str, Json], slot: socket.socket, trust: bool) -> TaskResult:
    """Fork a child for a task and see what becomes of it."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as seen:
        began, me = time.monotonic(), os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            slot.close()
            die_with_parent(me)
            stacks.answer_with_stack(seen)
            _child(data, writing, output, trust)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            watch = ChildWatch(pid, data, began, StackSamples(pid, data, seen))
            watch.run(pipe, slot)
        if watch.found is not None:
            kill_group(pid)
        _, status = os.waitpid(pid, 0)
        kill_group(pid)  # a C++ compiler that outlived it
        end_children()  # and what has left the group
        finding, lasting = watch.finding(status, _tail(output), data)
    return TaskResult(
        finding,
        time.monotonic() - began,
        watch.peak,
        lasting and not finding.killed,
        watch.looks.stayed_in,
        watch.is_presumed,
        watch.was_killed(status) or finding.killed,
    )


def _child(data: Mapping[str, Json], pipe: int, output: IO[bytes], trust: bool) -> NoReturn:
    """Run the task and write down what came of it. Ends the process, without any clean-up."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as an exception it would look like the case's
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    if not trust:
        _confine()
    from torchreel.minifier.oracle.child.runners import run_case
    from torchreel.minifier.oracle.child.stages import Position
    from torchreel.replay.imposed import torch_machine
    from torchreel.replay.imposed.device.answers import needs
    from torchreel.replay.imposed.facts import Facts

    def announce(position: Position) -> None:
        os.write(pipe, entered_line(position.stage, position.partition))

    task = replace(Task.from_json(data), trust=trust)
    if task.case.is_code and not trust:
        _write_all(
            pipe, ChildReport("invalid", None, "the case is not trusted", "decode").to_line()
        )
        os._exit(0)
    needs_device = bool(_machine) and _runs(task)
    on_device = needs_device and trust and _devices.reveal()
    if needs_device and not on_device:
        why = f"UnsupportedError: {needs(_machine)}"
        _write_all(pipe, ChildReport("invalid", None, why, "decode").to_line())
        os._exit(0)
    # Not in the parent: the threads of autograd for a device would not survive the fork.
    with (
        contextlib.nullcontext() if trust else torch_machine.without_other_programs(),
        contextlib.nullcontext()
        if on_device
        else torch_machine.imposed(Facts(accelerator=_machine or None)),
    ):
        finding = run_case(task, announce)
    _write_all(pipe, finding.to_line())
    os._exit(0)


def _runs(task: Task) -> bool:
    """Return True if compiled code is run, for which nothing stands in for a device."""
    return isinstance(task.case, Case) and task.case.harness != "compile"


def _confine() -> None:
    """Let a case do no harm, whatever it calls: it may write to Inductor's cache of this worker."""
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    folder.mkdir(exist_ok=True)
    programs = sandbox.cpp_compiler() + (sandbox.gpu_compilers() if _machine else ())
    sandbox.confine(sandbox.Confinement(folder, programs))


def _write_all(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
    return output.read().decode("utf-8", "replace").strip()

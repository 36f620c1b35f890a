"""A warm process that forks the children of replays, so that many of them import torch once.

Run as `python -m torchreel.replay.processes.fork_server`. A child that it forks is as fresh as one
that is started: all that is there is what each child imports before anything else, and nothing has
run. It must never start a thread: threads do not survive a fork. Lives here: both ends. Not here:
what a child does (`child`, `frame_child`), the environment and the time limit it gets (`launch`).

The two talk in lines of JSON: a task, then the child's process id, then how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from torchreel.sandbox.processes import die_with_parent, kill_group, private_channel

REQUEST, ERRORS = "request.json", "errors.txt"
"""In a child's folder: what it reads on standard input, and what it writes to standard error."""

_MOST = 2  # servers at a time: each keeps about 400 MB
# By interpreter, program and environment: a child has to be born with its variables.
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Child:
    """A forked child, seen from the process that wanted it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Do as `Popen.wait`: the exit status, negative for a signal.

        Raises `subprocess.TimeoutExpired`.
        """
        if self.returncode is None:
            line = self._server.read(timeout)
            # A server that was killed took the word of its children with it.
            self.returncode = 1 if line is None else int(line)
        return self.returncode


class ForkServer:
    """The warm process, seen from the process that wants children."""

    def __init__(
        self, python: str, program: str, environment: Mapping[str, str], folder: str
    ) -> None:
        self._program = program
        self._buffer = b""
        self._process = subprocess.Popen(
            [python, "-m", __spec__.name, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip

    def fork(self, folder: str) -> Child | None:
        """Start a child that runs the program in `folder`; None when that can't be."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([self._program, folder]).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self.read(None)
        return Child(self, int(line)) if line is not None else None

    def read(self, timeout: float | None) -> str | None:
        """Return a line; None when there is nobody to write one.

        Raises `subprocess.TimeoutExpired`.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        until = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                raise subprocess.TimeoutExpired(__spec__.name, timeout or 0.0)
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                return None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def close(self) -> None:
        """End the process; a child that is still there goes on."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()


class _ForkServers:
    """Those that are open, the one used last at the end; closed with the outermost `warm`."""

    def __init__(self) -> None:
        self._depth = 0
        self._open: dict[_Key, ForkServer] = {}

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        while self._open and not self._depth:
            self._close_oldest()

    def _close_oldest(self) -> None:
        self._open.pop(next(iter(self._open))).close()

    def forked(
        self, python: str, program: str, environment: Mapping[str, str], folder: str
    ) -> Child | None:
        """See the function of that name."""
        if not self._depth:
            return None
        key = (python, program, tuple(sorted(environment.items())))
        server = self._open.pop(key, None)
        # Python imports from the directory that it begins in: not from one where anybody may write.
        server = server or ForkServer(python, program, environment, os.sep)
        self._open[key] = server
        if len(self._open) > _MOST:
            self._close_oldest()
        child = server.fork(folder)
        if child is None:
            self._open.pop(key).close()
        return child


_servers = _ForkServers()


@contextlib.contextmanager
def warm() -> Iterator[None]:
    """Fork children of replays from warm processes for the length of a `with`.

    Each of those is started when the first child of its kind is wanted.
    """
    with _servers:
        yield


def forked(python: str, program: str, environment: Mapping[str, str], folder: str) -> Child | None:
    """Return a child that runs the module `program` in `folder`, its files `REQUEST` and `ERRORS`
    there.

    None outside of `warm`, and where there is no warm process to be had.
    """
    return _servers.forked(python, program, environment, folder)


def main() -> None:
    """Fork a child for each task on standard input, one after the other."""
    channel = private_channel()
    _import(sys.argv[1])
    for line in iter(sys.stdin.buffer.readline, b""):
        program, folder = json.loads(line)
        me, pid = os.getpid(), os.fork()
        if pid == 0:
            die_with_parent(me)
            channel.close()
            _become(program, folder)
        channel.write(f"{pid}\n".encode())
        channel.flush()
        status = _end_of(pid)
        channel.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        channel.flush()


def _end_of(pid: int) -> int:
    """Wait for a child; end it, and this process, when nobody is there to hear how it ended."""
    child, other = os.pidfd_open(pid), sys.stdin.buffer.fileno()
    looks = select.poll()
    looks.register(child, select.POLLIN)
    looks.register(other, 0)  # its end is told without being wanted
    while child not in (found := dict(looks.poll())):
        if found:
            kill_group(pid)
            os._exit(1)
    os.close(child)
    kill_group(pid)  # what it left behind; its number is its own until it is waited for
    return os.waitpid(pid, 0)[1]


def _import(program: str) -> None:
    """Import what each child that runs this program needs before it compiles anything."""
    import torchreel.recorder.session
    import torchreel.replay.child.restore
    import torchreel.replay.imposed.facts
    import torchreel.replay.imposed.torch_machine
    from torchreel import sandbox
    from torchreel.torch_compat import configs
    from torchreel.torch_compat.operators import dispatcher

    sandbox.prepare()
    configs.config_modules()  # imports them
    dispatcher.register_operators()
    if program == "torchreel.replay.child.frame_child":
        import torchreel.replay.child.frames.bundles
        import torchreel.replay.child.frames.tracing  # noqa: F401
        from torchreel.replay import dynamo_names

        dynamo_names.registered_backends()  # imports them


def _become(program: str, folder: str) -> NoReturn:
    """Be what `python -m program` would be, and end as that would."""
    os.setsid()
    os.chdir(folder)
    for name, descriptor, flags in (
        (REQUEST, 0, os.O_RDONLY),
        (os.devnull, 1, os.O_WRONLY),
        (ERRORS, 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(name, flags, 0o600), descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.path[0] = folder
    sys.argv[1:] = []
    sys.orig_argv[:] = [sys.executable, "-m", program]
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    main()

"""Python programs of tests, forked from a warm process: most of such a run is importing torch.

Run as `python -m tests.forks`. A program is what `python FILE` would be, but for the modules that
are imported already: the recorder finds them, as it does in a program that imports torch late.
Lives here: both ends, which talk in lines of JSON. Not here: programs for which it matters how they
begin; those are started.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_MOST = 3
"""Warm processes at a time: each has some 350 MB."""
_LOGGING = ("TORCH_TRACE", "TORCH_LOGS")
_AT_RUN_TIME = (*_LOGGING, "TORCHREEL", "PYTEST_", "TORCHINDUCTOR_CACHE_DIR", "BACKEND")
"""Beginnings of variables that nothing reads when torch is imported, or that are read again."""

_Key = tuple[tuple[str, str], ...]
_servers: dict[_Key, _Server] = {}


class Program:
    """A program that runs: as much of `subprocess.Popen` as its callers use."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server, self.pid = server, pid

    def wait(self) -> int:
        """Return the exit status, negative for a signal."""
        return int(self._server.answer())

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sig)


class _Server:
    """The warm process, seen from the tests."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = os.pathsep.join(filter(None, (str(_ROOT), environment.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": path}, cwd=_ROOT, text=True, bufsize=1,
        )  # fmt: skip

    def start(self, **request: object) -> Program:
        """Fork a program."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return Program(self, int(self.answer()))

    def answer(self) -> str:
        """Return the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the warm process of the tests has ended")
        return line

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def start(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    cwd: str | Path | None = None,
    stdout: str = "",
    stderr: str = os.devnull,
) -> Program:
    """Start `[python, FILE or "-c" TEXT, *arguments]`, forked; its output goes to files."""
    key = tuple(
        sorted(item for item in environment.items() if not item[0].startswith(_AT_RUN_TIME))
    )
    server = _servers.pop(key, None) or _Server(dict(key))
    _servers[key] = server
    if len(_servers) > _MOST:
        _servers.pop(next(iter(_servers))).close()
    return server.start(
        command=list(map(str, command)), environment=dict(environment), cwd=str(cwd or os.getcwd()),
        stdout=stdout or os.devnull, stderr=stderr,
    )  # fmt: skip


def run(
    command: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    *,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Do as `subprocess.run` with `capture_output` and `text`."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = os.path.join(folder, "stdout"), os.path.join(folder, "stderr")
        program = start(command, env or os.environ, cwd=cwd, stdout=out, stderr=err)
        status = program.wait()
        texts = [Path(name).read_text("utf-8", "replace") for name in (out, err)]
    done = subprocess.CompletedProcess(list(map(str, command)), status, *texts)
    if check:
        done.check_returncode()
    return done


@atexit.register
def _close() -> None:
    while _servers:
        _servers.popitem()[1].close()


def main() -> None:
    """Fork a program for each line on standard input, one after the other."""
    import torch._dynamo
    import torch._inductor.compile_fx

    torch._inductor.config  # noqa: B018  (it has read the environment)
    assert threading.active_count() == 1  # OpenBLAS takes care of its own
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    requests = sys.stdin
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            channel.close()
            break
        channel.write(f"{pid}\n")
        channel.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
    if line:
        _become(**json.loads(line))


def _become(
    command: list[str], environment: dict[str, str], cwd: str, stdout: str, stderr: str
) -> None:
    """Be the program, to whose end nothing is added: what it raises leaves this process."""
    for name, descriptor in ((os.devnull, 0), (stdout, 1), (stderr, 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(name, flags, 0o600), descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, file, *arguments = command
    text = arguments.pop(0) if file == "-c" else Path(file).read_text("utf-8")
    named = "<string>" if file == "-c" else os.path.abspath(file)
    sys.argv[:] = [file, *arguments]
    sys.orig_argv[:] = command
    given = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    rest = [place for place in sys.path[1:] if place not in (str(_ROOT), *given)]
    sys.path[:] = ["" if file == "-c" else os.path.dirname(named), *given, *rest]
    program = types.ModuleType("__main__")
    if file != "-c":
        program.__file__ = named
    sys.modules["__main__"] = program
    if any(map(os.environ.get, _LOGGING)):
        from torch._logging import _internal

        _internal.LOG_TRACE_HANDLER = None  # made for the directory that it found
        _internal._init_logs()
    if os.environ.get("TORCHREEL"):
        from torchreel.autoload import autoload

        autoload()
    exec(compile(text, named, "exec"), vars(program))


if __name__ == "__main__":
    main()

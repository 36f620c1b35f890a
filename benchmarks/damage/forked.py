"""Python children of a command as forks of it: torch is imported once, not once a child.

Lives here: what `subprocess.Popen` does instead of `exec`, and what a process imports so that its
forks need not.  Not here: which commands (`benchmarks.damaged`), how they are judged (`outcomes`).
A forked child reads its request, its standard input and the store as a started one does; it only
finds its modules imported.  Other programs, and Python that is to record, are started as ever.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import pkgutil
import runpy
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

SETTINGS: Mapping[str, str] = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
}  # fmt: skip
"""Variables without which an import starts threads, which do not survive a fork."""
_FORKED = (
    "torchreel.replay.processes.fork_server", "torchreel.replay.child.checkpoint_child",
    "torchreel.minifier.oracle.worker", "/minifier/repro/runner.py",
)  # fmt: skip
"""The children of replays and reductions.  Those that run a store's frames start threads."""
_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def warm_up() -> None:
    """Import torch and all that children import before they read anything."""
    os.environ.update(SETTINGS)
    for package in ("torchreel.replay", "torchreel.minifier", "torchreel.recorder"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    from torchreel import sandbox
    from torchreel.torch_compat import configs
    from torchreel.torch_compat.operators import dispatcher

    sandbox.prepare()
    configs.config_modules()
    dispatcher.register_operators()
    if len(os.listdir("/proc/self/task")) != 1 or threading.active_count() != 1:
        raise RuntimeError("An import started a thread: forks of this process would hang.")
    gc.collect()
    gc.freeze()


def fork_children() -> None:
    """Let `subprocess.Popen` of this process fork what would be another Python."""
    subprocess.Popen._execute_child = _forked  # type: ignore[attr-defined]


def _forked(
    self: Any, args: Any, executable: Any, preexec_fn: Any, close_fds: bool,
    pass_fds: Sequence[int], cwd: Any, env: Mapping[str, str] | None, *rest: Any,
) -> None:  # fmt: skip
    """Do as `Popen._execute_child` of Python 3.11 does."""
    words = [os.fspath(word) for word in args] if isinstance(args, (list, tuple)) else []
    if len(words) < 3 or words[0] != sys.executable or not words[2].endswith(_FORKED):
        _execute(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
        return
    pipes, new_session = rest[3:9], rest[14]
    p2cread, _, _, c2pwrite, _, errwrite = pipes
    self.pid = os.fork()
    if self.pid == 0:
        if new_session:
            os.setsid()
        _become(words, (p2cread, c2pwrite, errwrite), pass_fds, cwd, env)
    self._child_created = True
    self._close_pipe_fds(*pipes)


def _become(
    words: Sequence[str], streams: tuple[int, int, int], kept: Sequence[int], cwd: Any,
    env: Mapping[str, str] | None,
) -> NoReturn:  # fmt: skip
    """Be what the command line would be, as far as Python code can tell; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _take(streams, kept)
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]
        _run(words)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _take(streams: tuple[int, int, int], kept: Sequence[int]) -> None:
    """Have these descriptors as standard streams, of the others the kept ones, and no more."""
    moved = [fcntl.fcntl(d, fcntl.F_DUPFD, 100) if d >= 0 else -1 for d in streams]
    for target, descriptor in enumerate(moved):
        if descriptor >= 0:
            os.dup2(descriptor, target)
    known = {0, 1, 2, *kept}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in known:
            try:
                os.close(int(name))
            except OSError:
                continue  # that of the listing
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115


def _run(words: Sequence[str]) -> None:
    plain = [path for path in sys.path if path and path not in ("", _here)]
    if words[1] == "-m":
        added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = [os.getcwd(), *filter(None, added), *plain]
        sys.argv[:] = ["-m", *words[3:]]
        sys.orig_argv[:] = list(words)
        sys.modules.pop(words[2], None)  # runpy warns of a module that is imported already
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        return
    # Isolated: nothing of this project is to be had but by its path.
    sys.path[:] = [path for path in plain if path in site.getsitepackages() or "lib/" in path]
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchreel"]:
        del sys.modules[name]
    sys.argv[:] = list(words[2:])
    sys.orig_argv[:] = list(words)
    runpy.run_path(words[2], run_name="__main__")


_here = os.getcwd()

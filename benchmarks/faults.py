"""Programs with and without the recorder, under 200 faults: is there any difference?

    python -m benchmarks.faults [FIRST RUNS] [PROGRAM ...]

Programs that compile, fail, fork, use threads and end in different ways, each with a fault in the
middle: the store is deleted, overwritten or replaced, the disk is full, descriptors are closed, the
process is killed.  Standard output, standard error and exit status have to be those without the
recorder; a program says which of its compiles have returned, and none of these may count as failed
or be missing from a store that is still there.  Each process is forked from a warm one, which has
torch imported, and recorded as `torchreel record` does it.  Ends with a table; exits with 1 when
there was a difference.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchreel.commands.views import record as view
from torchreel.errors import TorchreelError
from torchreel.recorder.launch import record_program
from torchreel.recorder.settings import Settings
from torchreel.store import Store, queries
from torchreel.store.post_mortem import settle
from torchreel.store.processes import marks
from torchreel.store.processes.liveness import is_alive

PRELUDE = """
import atexit, os, resource, shutil, signal, sys, threading, torch
STORE, OTHER = sys.argv[1:3]

def say(text):
    os.write(OUT, (text + "\\n").encode())

def build(n):
    scope = {}
    exec(f"def f{n}(x): return (x * {n}).sin() + {n}", scope)
    return torch.compile(scope[f"f{n}"], backend="aot_eager")

def call(n):
    build(n)(torch.ones(3))
    say(f"returned f{n}")

def fault():
    FAULT

OUT = os.dup(1)
os.dup2(OUT, 1000)
os.close(OUT)
OUT = 1000
"""

PROGRAMS = {
    "plain": """
        call(1); call(2); fault(); call(3); call(4)
        print("the end")
    """,
    "failing": """
        def refuse(graph, inputs):
            raise ValueError("no")
        call(1)
        fault()
        try:
            torch.compile(lambda x: x.cos(), backend=refuse)(torch.ones(3))
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0], flush=True)
        call(2)
        torch.compile(lambda x: x.tan(), backend=refuse)(torch.ones(3))
    """,
    "status": """
        call(1); fault(); call(2)
        sys.exit(7)
    """,
    "printing": """
        print("to stdout", flush=True)
        print("to stderr", file=sys.stderr, flush=True)
        call(1); fault(); call(2)
        sys.exit("a sentence instead of a number")
    """,
    "threads": """
        def work(n):
            x = torch.ones(3)
            f = build(n)
            f(x)
            done.append(n)
        done = []
        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n in sorted(done):
            say(f"returned f{n}")
        fault()
        call(9)
    """,
    "fork": """
        call(1)
        child = os.fork()
        if child == 0:
            call(2)
            os._exit(5)
        say(f"child {os.waitpid(child, 0)[1]}")
        fault()
        call(3)
        child = os.fork()
        if child == 0:
            call(4)
            sys.exit(6)
        say(f"child {os.waitpid(child, 0)[1]}")
    """,
    "hooks": """
        def hook(kind, error, trace):
            print("hook:", kind.__name__, error, flush=True)
        sys.excepthook = hook
        threading.excepthook = lambda args: print("thread:", args.exc_value, flush=True)
        atexit.register(lambda: print("at exit", flush=True))
        call(1); fault(); call(2)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start(); thread.join()
        raise KeyError("uncaught")
    """,
}

FAULTS = {
    "none": "pass",
    "store deleted": "os.path.exists(STORE) and os.unlink(STORE)",
    "store overwritten with text": "open(STORE, 'w').write('mine')",
    "store replaced by another": (
        "shutil.copy(OTHER, STORE + '.x'); os.replace(STORE + '.x', STORE)"
    ),
    "store overwritten by another": "shutil.copyfile(OTHER, STORE)",
    "directory deleted": "shutil.rmtree(os.path.dirname(STORE))",
    "directory renamed": "os.rename(os.path.dirname(STORE), os.path.dirname(STORE) + '2')",
    "disk full from the start": "pass",
    "disk full in the middle": """
    with open(os.path.dirname(STORE) + '/filler', 'wb', buffering=0) as file:
        try:
            while True: file.write(bytes(4096))
        except OSError: pass
    """,
    "read-only directory": "pass",
    "descriptors closed": """
    os.closerange(3, 256)
    global files, content
    content = "mine " * 1000
    files = [open(f"{os.path.dirname(OTHER)}/file{n}", "w+") for n in range(40)]
    for file in files: file.write(content); file.flush()
    def look():
        bad = [file.name for file in files if open(file.name).read() != content]
        os.write(OUT, f"files changed: {len(bad)}\\n".encode())
    atexit.register(look)
    """,
    "standard input closed": "os.close(0)",
    "standard error closed": "os.close(2)",
    "files may not grow": "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))",
    "files may not grow, or it ends": """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    """,
    "few descriptors": """
    used = max(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 6, used + 6))
    """,
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT)",
    "SIGABRT": "os.abort()",
    "os._exit": "os._exit(9)",
    "sys.exit at exit": "atexit.register(lambda: sys.exit(4))",
    "os._exit at exit": "atexit.register(lambda: os._exit(8))",
    "alarms": """
    global rung
    rung = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    atexit.register(lambda: signal.setitimer(signal.ITIMER_REAL, 0))
    """,
    "children are waited for": """
    signal.signal(signal.SIGCHLD, lambda *_: say("a child ended"))
    """,
    "traced": """
    seen = set()
    def trace(frame, event, arg):
        if frame.f_code.co_filename == "program": seen.add(frame.f_lineno)
        return trace
    sys.settrace(trace)
    atexit.register(lambda: say(f"lines {sorted(seen)}"))
    """,
    "debugger": """
    import bdb
    class Debugger(bdb.Bdb):
        def user_line(self, frame):
            if frame.f_code.co_filename == "program": seen.append(frame.f_lineno)
    seen = []
    Debugger().set_trace(sys._getframe(1))
    atexit.register(lambda: say(f"stops {sorted(set(seen))}"))
    """,
    "profiled": "sys.setprofile(lambda *_: None)",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "tracemalloc, faulthandler": """
    import faulthandler, tracemalloc
    tracemalloc.start(); faulthandler.enable(file=sys.__stderr__)
    """,
    "chdir, umask": "os.chdir('/'); os.umask(0o777)",
    "wakeup descriptor": """
    read, write = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(write)
    def look():
        signal.set_wakeup_fd(-1)
        try:
            say(repr(os.read(read, 9)))
        except BlockingIOError:
            say("no signal came")
    atexit.register(look)
    """,
    "a second recorder": """
    import torchreel
    torchreel.install(os.path.dirname(OTHER) + "/second.db")
    """,
    "SIGKILL at random": "pass",
    "SIGTERM at random": "pass",
    "SIGINT at random": "pass",
}
_ADDRESS = re.compile(r"0x[0-9a-f]+")
STORE_GONE = (
    "store deleted", "store overwritten with text", "store replaced by another",
    "store overwritten by another", "directory deleted", "directory renamed",
    "disk full from the start", "read-only directory",
)  # fmt: skip
"""After these there is no store to look at, or it is not ours."""
CUT = (
    "disk full in the middle", "descriptors closed", "files may not grow", "few descriptors",
    "files may not grow, or it ends",
)  # fmt: skip
"""After these, what came later may be missing."""


@dataclass(frozen=True)
class Case:
    """A program, a fault, and the seed of what is random."""

    program: str
    fault: str
    number: int

    @property
    def text(self) -> str:
        """The program with its fault."""
        lines = FAULTS[self.fault].strip("\n").splitlines()
        margin = len(lines[0]) - len(lines[0].lstrip())
        body = "\n    ".join(line[margin:] for line in lines)
        program = PROGRAMS[self.program].strip("\n").splitlines()
        indent = len(program[0]) - len(program[0].lstrip())
        return PRELUDE.replace("FAULT", body) + "\n".join(line[indent:] for line in program)

    @property
    def mode(self) -> str:
        """Full and flight in turns."""
        return ("full", "flight")[self.number % 2]


@dataclass(frozen=True)
class Outcome:
    """What a program leaves."""

    status: int
    out: str
    err: str
    notes: str = ""
    differences: list[str] = field(default_factory=list)


class Child:
    """A program in a process forked from this one."""

    def __init__(self, case: Case, folder: Path, store: Path, variables: Mapping[str, str]) -> None:
        self.case, self.out = case, folder / "out"
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(case, folder, store, variables)

    def wait(self) -> int:
        """Wait for its end, or bring it about."""
        if "at random" in self.case.fault:
            self._kill()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def send_signal(self, sig: int) -> None:
        """Pass a signal on."""
        os.kill(self.pid, sig)

    def _kill(self) -> None:
        """Wait for some compiles to return, then a moment."""
        moment = random.Random(self.case.number)
        lines, until = moment.randrange(4), time.monotonic() + 60
        while self.out.read_bytes().count(b"\n") < lines and time.monotonic() < until:
            time.sleep(0.002)
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        time.sleep(moment.uniform(0, 0.15))
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.Signals[self.case.fault.split()[0]])


def _become(case: Case, folder: Path, store: Path, variables: Mapping[str, str]) -> None:
    """In the child: the program, from here to the end of the interpreter."""
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)  # as in a program that is executed
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(variables)
    sys.argv[:] = ["program", str(store), str(folder / "files" / "other.db")]
    from torchreel.autoload import autoload

    autoload()
    status = 0
    try:
        exec(compile(case.text, "program", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            with contextlib.suppress(OSError):  # as Python does
                print(ended.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001  (the end of a process)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        trace = error.__traceback__
        sys.excepthook(type(error), error, trace.tb_next if trace is not None else None)
    # As the interpreter ends, but not through what this script does around a child; and in one of
    # four only to the last object, for of these torch has a million.
    if case.number % 4 == 0:
        ctypes.pythonapi.Py_Exit(status)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(status)


def main(arguments: list[str]) -> int:
    """Run the cases, print the table; the exit status."""
    import torch

    torch.set_num_threads(1)
    torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2))
    torch._dynamo.reset()
    gc.freeze()  # a child need not look through all of torch as it ends
    first, runs = map(int, [a for a in arguments if a.isdigit()] or (0, 210))
    names = [a for a in arguments if not a.isdigit()] or list(PROGRAMS)
    counts, found = Counter[str](), []
    other = Path(tempfile.mkdtemp(prefix="torchreel-faults-"))
    Store.open(other / "other.db", create=True).close()
    try:
        for case in cases(names, first, runs):
            if case.number % 10 == 0:
                print(f"case {case.number}", file=sys.stderr, flush=True)
            differences = examine(case, other / "other.db")
            counts[case.fault] += 1
            found += [(case, difference) for difference in differences]
            for difference in differences:
                print(f"{case}: {difference}", flush=True)
    finally:
        shutil.rmtree(other)
    _print(counts, found)
    return 1 if found else 0


def cases(programs: Sequence[str], first: int, runs: int) -> Iterator[Case]:
    """Every fault with another program each time around."""
    for number in range(first, first + runs):
        around, fault = divmod(number, len(FAULTS))
        name = list(FAULTS)[fault]
        yield Case(programs[(around + fault) % len(programs)], name, number)


def _print(counts: Counter[str], found: list[tuple[Case, str]]) -> None:
    print(f"{'fault':34} {'runs':>5} {'differences':>12}")
    for fault in FAULTS:
        bad = sum(case.fault == fault for case, _ in found)
        print(f"{fault:34} {counts[fault]:5} {bad:12}")
    print(f"{'all':34} {counts.total():5} {len(found):12}")


def examine(case: Case, other: Path) -> list[str]:
    """Run a case without and with the recorder; what differs."""
    plain = _run(case, other, recorded=False)
    recorded = _run(case, other, recorded=True)
    found = list(recorded.differences)
    if "at random" in case.fault:
        return found + _beginning(case, plain, recorded)
    for what in ("status", "out", "err"):
        mine, theirs = getattr(recorded, what), getattr(plain, what)
        if mine != theirs:
            found.append(f"{what} is {mine!r:.900}, without the recorder {theirs!r:.900}")
    return found


def _beginning(case: Case, plain: Outcome, recorded: Outcome) -> list[str]:
    """A kill at random comes at another moment: only what does not depend on that."""
    number = signal.Signals[case.fault.split()[0]]
    ends = {128 + number, 0, 1, 7}
    bad = [f"status {one.status}" for one in (plain, recorded) if one.status not in ends]
    if not (plain.out.startswith(recorded.out) or recorded.out.startswith(plain.out)):
        bad.append(f"out is {recorded.out!r}, without the recorder {plain.out!r}")
    return bad


def _run(case: Case, other: Path, *, recorded: bool) -> Outcome:
    folder = Path(tempfile.gettempdir(), f"torchreel-fault-{os.getpid()}")
    store = folder / "store" / "run.db"
    (folder / "store").mkdir(parents=True)
    (folder / "files").mkdir()
    shutil.copy(other, folder / "files" / "other.db")
    if not recorded and case.fault != "read-only directory":
        store.touch()  # for faults that need one
    mounted = _mount(case, folder / "store")
    try:
        return _outcome(case, folder, store, recorded=recorded)
    finally:
        for _ in range(mounted):
            subprocess.run(["umount", "-l", str(folder / "store")], check=False)
        shutil.rmtree(folder)


def _mount(case: Case, place: Path) -> int:
    """The file system that a fault needs; how often something was mounted."""
    size = {"disk full from the start": "16k", "disk full in the middle": "700k"}.get(case.fault)
    commands = []
    if size:
        commands = [["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]]
    elif case.fault == "read-only directory":
        commands = [["--bind", str(place)], ["-o", "remount,ro,bind"]]
    for command in commands:
        subprocess.run(["mount", *command, str(place)], check=True)
    return min(len(commands), 1)


def _outcome(case: Case, folder: Path, store: Path, *, recorded: bool) -> Outcome:
    def start(command: Sequence[str], variables: Mapping[str, str]) -> Child:
        return Child(case, folder, store, variables)

    (folder / "out").touch()
    notes, differences = "", []
    if recorded:
        ended = record_program([sys.executable, "program"], store, case.mode, Settings(), start)
        status = ended.status
        with contextlib.redirect_stderr(io.StringIO()) as said:
            view.end(str(store), 0, ended)
        notes = said.getvalue()
    else:
        code = start([], os.environ).wait()
        status = code if code >= 0 else 128 - code
    out, err = (_ADDRESS.sub("0x", (folder / name).read_text()) for name in ("out", "err"))
    if recorded:
        differences = list(_look(case, store, out, notes))
    return Outcome(status, out, err, notes, differences)


def _look(case: Case, store: Path, out: str, notes: str) -> Iterator[str]:
    """What is wrong with what was left behind."""
    if "Traceback" in notes:
        yield f"said {notes!r}"
    if case.fault in STORE_GONE:
        if "othing was recorded" not in notes:
            yield f"said only {notes!r}"
        yield from _untouched(case, store)
        return
    if not store.exists():
        # A program that ended badly before it compiled leaves none.
        if (returned := _returned(out)) and case.fault not in CUT:
            yield f"{', '.join(returned)} missing, with the store"
        return
    with contextlib.closing(sqlite3.connect(store)) as connection:
        if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            yield "the store is damaged"
    yield from _compared(case, store, out)
    _settle_orphans(store)
    litter = {file.name for file in store.parent.iterdir()} - {
        "run.db", "run.db-wal", "run.db-shm", "filler",
    }  # fmt: skip
    # On a full disk the store can't say what the marks say: they stay until it can.
    if litter and case.fault != "disk full in the middle":
        yield f"left behind {sorted(litter)}"


def _settle_orphans(path: Path) -> None:
    """Wait for the children of a program that was killed, and complete what they recorded."""
    until = time.monotonic() + 60
    while left := list(marks.left_behind(str(path))):
        with contextlib.suppress(TorchreelError), Store.open(path, write=True) as store:
            settle(store)
        if time.monotonic() > until or not any(is_alive(pid, None) for pid, _ in left):
            return
        time.sleep(0.2)


def _untouched(case: Case, store: Path) -> Iterator[str]:
    if case.fault == "store overwritten with text" and store.read_bytes() != b"mine":
        yield "the text was changed"
    elif case.fault.endswith("by another") and (
        store.read_bytes() != (store.parent.parent / "files" / "other.db").read_bytes()
    ):
        yield "the other store was changed"


def _returned(out: str) -> list[str]:
    """Return the functions of which the program says that they returned."""
    return [line.split()[1] for line in out.splitlines() if line.startswith("returned")]


def _compared(case: Case, path: Path, out: str) -> Iterator[str]:
    """Whether each compile that returned is there, and as one that did."""
    returned = _returned(out)
    with Store.open(path) as store:
        rows = [c for r in queries.recordings(store) for c in queries.compiles(store, r.id)]
        crashes = {f.compile_id for f in queries.failures(store) if f.failure_class == "crash"}
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.frame_name, []).append(row.status)
        if row.id in crashes and row.frame_name in returned and case.fault != "SIGABRT":
            yield f"{row.frame_name} returned, and is a crash"
    for name in returned:
        if name not in found:
            if case.fault not in CUT:
                yield f"{name} is missing"
        elif set(found[name]) - {"ok"}:
            yield f"{name} returned, and is {found[name]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Ways to start a program, with and without the recorder: is there any difference?

    python -m benchmarks.fault_forms [NAME ...]

Options of the interpreter, debuggers, closed descriptors and limits that are there from the start;
each is a process of its own, recorded by the command line.  `faults` has what happens later.
Exits with 1 when standard output, standard error but for our last lines, or the exit status
differ.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import os, sys, threading, torch

def f(x):
    return x.sin() + 1

if __name__ == "__main__":
    print(torch.compile(f, backend="eager")(torch.zeros(2)).tolist(), flush=True)
    open_ones = []
    for number in range(3):
        try:
            os.fstat(number)
            open_ones.append(number)
        except OSError:
            pass
    open("open_ones", "w").write(str(open_ones))
    EXTRA
    sys.exit(7)
"""
SPAWN = """import multiprocessing
    import worker
    for method in ("spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=worker.work)
        process.start()
        process.join()
        print(method, process.exitcode, flush=True)"""
CLEARED = """import subprocess
    code = "import torch; print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)))"
    print(subprocess.run([sys.executable, "-c", code], env={}, capture_output=True).stdout)"""
TRACED = """import runpy
    def lines(frame, event, argument):
        if frame.f_code.co_filename.endswith("program.py"):
            print(event, frame.f_code.co_name, frame.f_lineno, flush=True)
            return lines
    sys.settrace(lines)
    try:
        runpy.run_path("program.py", run_name="__main__")
    except SystemExit as error:
        print("status", error.code, flush=True)
    sys.settrace(None)"""
WORKER = """
import torch

def work():
    print(torch.compile(lambda x: x.cos(), backend="eager")(torch.zeros(1)).item(), flush=True)
"""
FORMS = {
    "plain": "python program.py",
    "-X dev": "python -X dev program.py",
    "-W error": "python -W error program.py",
    "-O": "python -OO program.py",
    "-I": "python -I program.py",
    "-P": "PYTHONSAFEPATH=1 python program.py",
    "-c": 'python -c "$(cat program.py)"',
    "-m": "python -m program",
    "from standard input": "python - < program.py",
    "pdb": "python -m pdb -c continue program.py < /dev/null",
    "a tracer": "python traced.py",
    "ulimit -f": "ulimit -f 20; exec python program.py",
    "ulimit -n": "ulimit -n 64; exec python program.py",
    "standard input closed": "exec python program.py <&-",
    "standard output closed": "exec python program.py >&-",
    "standard error closed": "exec python program.py 2>&-",
    "all three closed": "exec python program.py <&- >&- 2>&-",
    "standard output full": "exec python program.py > /dev/full",
    "without environment": "env -i $(command -v python) program.py",
    "spawn, forkserver": "python spawn.py",
    "a child without environment": "python cleared.py",
    "not a program": "sh -c 'exit 3'",
}


def main(names: list[str]) -> int:
    """Run the forms; the exit status."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="torchreel-forms-") as folder:
        for name, extra in (
            ("program", "pass"),
            ("spawn", SPAWN),
            ("cleared", CLEARED),
            ("traced", TRACED),
        ):
            Path(folder, f"{name}.py").write_text(PROGRAM.replace("EXTRA", extra))
        Path(folder, "worker.py").write_text(WORKER)
        for name in names or FORMS:
            difference = _difference(name, Path(folder))
            print(f"{name:30} {difference or 'no difference'}", flush=True)
            bad += bool(difference)
    print(f"{len(names or FORMS)} ways to start a program, {bad} with a difference")
    return min(bad, 1)


def _difference(name: str, folder: Path) -> str:
    plain = _run(FORMS[name], folder, [])
    store = folder / f"{name.replace(' ', '-')}.db"
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", str(store), "--"]
    recorded = _run(FORMS[name], folder, command)
    for what, mine, theirs in zip(("status", "out", "err", "open"), recorded, plain, strict=True):
        if mine != theirs:
            return f"{what} is {mine!r:.1500}, without the recorder {theirs!r:.500}"
    left = sorted(file.name for file in folder.glob(f"{store.name}*"))
    # A program that ended badly and compiled nothing leaves no store.
    fine = [[store.name], []] if plain[0] else [[store.name]]
    return "" if left in fine else f"left {left}"


def _run(form: str, folder: Path, before: list[str]) -> tuple[int, str, str, str]:
    (folder / "open_ones").write_text("")
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        [*before, "sh", "-c", form], cwd=folder, env=path, capture_output=True, text=True
    )
    lines = done.stderr.splitlines()
    ours = ("torchreel:", "next: torchreel") if before else ()
    while lines and lines[-1].startswith(ours):
        lines.pop()
    return done.returncode, done.stdout, "\n".join(lines), (folder / "open_ones").read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

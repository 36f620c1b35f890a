"""The whole way, on a program that really fails: record, look, replay, minify, run the repro.

Run by `make demo`. Prints every command as one would type it, and ends with status 1 as soon as
anything is not as it should be. Everything that it writes lies in `demo-output/`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from torchreel.torch_compat.versions import releases

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = Path("demo-output")
STORE = OUTPUT / "run.db"
REPRO = OUTPUT / "repro"


@dataclass(frozen=True)
class Bug:
    """A program that fails for a bug of torch, what its error shows, and when it was fixed.

    `until` is the last release with the bug; '' if the newest one has it.
    """

    program: str
    shows: str
    until: str = ""


BUGS = (
    Bug("examples/keep_best.py", "aten.scatter", until="2.13"),
    Bug("examples/gated_blocks.py", "VecMask<c10::Half"),
)


class Unexpected(Exception):
    """A step did not end as it should."""


def main() -> int:
    """Go through all steps; returns the exit status."""
    os.chdir(ROOT)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    began = time.monotonic()
    try:
        walk()
    except Unexpected as error:
        print(f"\ndemo: NOT as it should be: {error}", file=sys.stderr)
        return 1
    print(f"\ndemo: all as it should be, in {time.monotonic() - began:.0f} s.")
    return 0


def walk() -> None:
    """The way of a failure, from a program that knows nothing of torchreel to a bug report."""
    bug = bug_of(releases.installed())
    program = ["python", bug.program]
    step("Record it.", ["torchreel", "record", "-o", str(STORE), "--", *program], status=1)
    step("What is in the store?", ["torchreel", "ls", str(STORE)])
    step("What failed, where, with what?", ["torchreel", "show", str(STORE)])
    step("Does it happen again, without the program?", ["torchreel", "replay", str(STORE)])
    step("Shrink it.", ["torchreel", "minify", str(STORE), "-o", str(REPRO)])
    run = ["python", str(REPRO / "repro.py")]
    shown = step("Run the repro in a process of its own.", run, status=1, listen=True)
    expect_same_error(shown, bug.shows)


def bug_of(torch: releases.Installed) -> Bug:
    """Return the first bug that a torch has, or may have where its release is not known."""
    for bug in BUGS:
        release = torch.release or releases.KNOWN[-1]
        if not bug.until or release <= releases.parse(bug.until):
            return bug
    raise Unexpected(f"no program that fails with torch {torch.version} is known")


def step(title: str, command: list[str], *, status: int = 0, listen: bool = False) -> str:
    """Run a command that should end with `status`; returns its stderr if we `listen`."""
    print(f"\n# {title}\n$ {' '.join(command)}", flush=True)
    stderr = subprocess.PIPE if listen else None
    found = subprocess.run(resolved(command), env=environment(), stderr=stderr, text=True)
    print(found.stderr or "", end="", file=sys.stderr, flush=True)
    if found.returncode != status:
        raise Unexpected(f"exit status {found.returncode} instead of {status}")
    return found.stderr or ""


def resolved(command: list[str]) -> list[str]:
    """The commands of this very environment, whatever is on the path."""
    here = {"python": sys.executable, "torchreel": str(Path(sys.executable).parent / "torchreel")}
    return [here.get(word, word) for word in command]


def environment() -> dict[str, str]:
    """Without settings that would record the steps themselves, or name another store."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TORCHREEL")}


def expect_same_error(shown: str, text: str) -> None:
    """The repro's error is the recorded one: the same types, with what the bug shows."""
    command = resolved(["torchreel", "show", str(STORE), "--json"])
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    failure = json.loads(found.stdout)["failure"]
    wanted = [name.rpartition(".")[2] for name in failure["signature"]["exception_types"]]
    missing = [name for name in [*wanted, text] if name not in shown]
    if missing:
        raise Unexpected(f"the repro does not show {', '.join(missing)}")
    print(f"\nThe repro fails with the recorded error: {' from '.join(wanted)}.")


if __name__ == "__main__":
    sys.exit(main())

"""What recording costs in instructions: nearly the same on every run, on a busy machine as well.

    python -m benchmarks.instructions [MODEL ...] [static dynamic] [aot_eager inductor]
                                      [full flight torch_trace shape_events room]

One process for each program and recorder, under Valgrind (cachegrind, without its caches), with a
fixed hash seed; what a process does until just before its first call is taken off.  Two runs differ
by 0.05 % of a small compile, where CPU seconds differ by a tenth: this is what to look at while
something is made cheaper.  It is blind to caches and to what threads wait for, and Valgrind's
processor lacks instructions (for SHA-256, or 512 bits wide) that others have.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import product

from benchmarks.recording import PROGRAM, chosen, prepared

_TOOL = ("valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}")
_COUNT = re.compile(r"I +refs: +([\d,]+)")


def main(arguments: Sequence[str]) -> int:
    """Count the chosen combinations (all by default); the exit status."""
    if shutil.which(_TOOL[0]) is None:
        print("Instructions are counted by Valgrind: install it.", file=sys.stderr)
        return 1
    *programs, recorders = chosen(arguments)
    for program in product(*programs):
        before = _count(program, "", calls=0)
        none = _count(program, "") - before
        print(f"{' '.join(program)} | none | {none / 1e6:.0f} million", flush=True)
        for recorder in recorders:
            more = _count(program, recorder) - before - none
            print(
                f"{' '.join(program)} | {recorder} | +{more / 1e6:.0f} million | "
                f"{1 + more / none:.3f}",
                flush=True,
            )
    return 0


def _count(program: tuple[str, ...], recorder: str, calls: int = 1) -> int:
    with prepared(recorder) as (_, variables):
        command = [*_TOOL, sys.executable, str(PROGRAM), *program, str(calls)]
        variables["PYTHONHASHSEED"] = "0"
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        found = _COUNT.search(done.stderr)
        # Valgrind counts the instructions of a program that failed as well.
        assert done.returncode == 0, done.stderr[-2000:]
        assert found is not None, done.stderr[-2000:]
        return int(found[1].replace(",", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

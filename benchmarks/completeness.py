"""Is every record that TORCH_TRACE writes in the store?  With Inductor, program by program.

    python -m benchmarks.completeness [PROGRAM ...] [--backend NAME]

The programs of `tests/recorder/trace_programs.py`, each in a process of its own with both switched
on; prints how many records each has, how many kinds, how many differ, and how the program ended
(torch 2.13 itself fails to lower this scan on a CPU: what it wrote until then is compared).  Exits
with 1 when a record differs.
"""

import re
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.recorder.test_completeness import EXPECTED, run
from tests.recorder.trace_programs import PROGRAMS


def chosen(arguments: list[str]) -> tuple[Collection[str], str]:
    """The programs that are named (all by default), and the backend."""
    backend = "inductor"
    if "--backend" in arguments:
        place = arguments.index("--backend")
        backend = arguments[place + 1]
        arguments = arguments[:place] + arguments[place + 2 :]
    return arguments or PROGRAMS, backend


def main(arguments: list[str]) -> int:
    """Run the chosen programs; the exit status."""
    programs, backend = chosen(arguments)
    table = Table("program", "records", "kinds", "in the store", "different", "ended")
    bad = 0
    for name in programs:
        row = _one(name, backend)
        bad += row[1] != row[3] or row[4] != "0"
        print(" | ".join(row), flush=True)
        table.add_row(*row)
    Console(width=120).print(table)
    return min(bad, 1)


def _one(name: str, backend: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="torchreel-completeness-") as folder:
        both = run(Path(folder), backend, name)
    assert any(EXPECTED[name] in (item.payload or "") for item in both.torch), name
    different = sum(ours != theirs for ours, theirs in zip(both.store, both.torch, strict=False))
    kinds = {item.kind for item in both.torch}
    counts = (len(both.torch), len(kinds), len(both.store), different)
    return [name, *map(str, counts), _ended(both.error)]


def _ended(error: str) -> str:
    """The line of a traceback that names the exception."""
    named = (line for line in error.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line))
    return "well" if not error else next(named, "badly").split(":")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

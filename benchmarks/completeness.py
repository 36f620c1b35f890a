"""Is every record that TORCH_TRACE writes in the store?  With Inductor, program by program.

    python -m benchmarks.completeness [PROGRAM ...] [--backend NAME]

The programs of `tests/recorder/trace_programs.py`, each in a process of its own with both switched
on; prints how many records each has, how many kinds, and how many differ.  Exits with 1 when one
does.
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.recorder.test_completeness import EXPECTED, run
from tests.recorder.trace_programs import PROGRAMS


def main(arguments: list[str]) -> int:
    """Run the chosen programs (all by default); the exit status."""
    backend = "inductor"
    if "--backend" in arguments:
        place = arguments.index("--backend")
        backend = arguments[place + 1]
        arguments = arguments[:place] + arguments[place + 2 :]
    table = Table("program", "records", "kinds", "in the store", "different")
    bad = 0
    for name in arguments or PROGRAMS:
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
    return [name, str(len(both.torch)), str(len(kinds)), str(len(both.store)), str(different)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

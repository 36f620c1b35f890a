"""`make source`: Dynamo failures reduced to a program: how long it is, and what that cost.

The model of `source_program` (three hundred lines, helper functions, four modules) sorts by values
of tensors, which Dynamo refuses. Runs and CPU seconds do not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
from pathlib import Path

import torch

import torchreel
from benchmarks import source_program
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import ExportOptions, export
from torchreel.store import Store, queries

MOST_LINES = 15


def main() -> int:
    """Reduce it, print what came of it; 0 when the program is short and fails in the same way."""
    with tempfile.TemporaryDirectory(prefix="torchreel-source-") as folder:
        path = Path(folder) / "run.db"
        with torchreel.record(path), contextlib.suppress(Exception):
            torch.compile(source_program.build(), fullgraph=True)(*source_program.inputs())
        before = _children()
        with Store.open(path, write=True) as store:
            reduction = minify(store, options=MinifyOptions(trust=True))
            seconds = _children() - before
            compile = queries.latest_failing(store)
            assert compile is not None, "the program fails"
            exported = export(store, compile, ExportOptions(Path(folder) / "repro", trust=True))
    lines = [line for line in exported.script.text.splitlines() if line and line[0] != "#"]
    print(exported.script.text)
    print(
        f"{reduction.before_call_nodes} -> {reduction.after_call_nodes} statements, "
        f"{len(lines)} lines, {reduction.oracle_runs} runs, {seconds:.0f} CPU seconds, "
        f"{reduction.status}; in a fresh process: {exported.check.detail}"
    )
    return 0 if exported.check.holds and len(lines) <= MOST_LINES else 1


def _children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())

"""torchreel's side of `benchmarks.minifier`: reduces a store's failure and writes the repro.

    python benchmarks/minifier_side.py STORE DIRECTORY IMPORTS [accuracy]

Writes `measured.json` into the directory: CPU seconds of the reduction (of this process, after
its imports, and of all that it started), oracle runs, call nodes, runs until the last call node
went (what follows makes sizes, dtypes and arguments plain, which torch's does not); and what the
export adds, where the repro is run in fresh processes.
"""

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path

from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.store import queries
from torchreel.store.database import Store


def cpu() -> float:
    """User and system seconds of this process and of its children that ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, who))


class Progress:
    """Remembers after how many runs the last call node of the outer graph went."""

    nodes = runs = -1

    def on_step(self, event: ProgressEvent) -> None:
        """See `Listener`."""
        if event.call_nodes != self.nodes:
            self.nodes, self.runs = event.call_nodes, event.oracle_runs


def main(target: str, directory: str, imports: str, accuracy: str = "") -> None:
    """Reduce, measure, export."""
    progress = Progress()
    options = MinifyOptions(imports=tuple(imports.split(",")) if imports else ())
    with Store.open(Path(target), write=True) as store:
        before = cpu()
        found = minify(store, accuracy=bool(accuracy), options=options, listener=progress)
        reduced = cpu()
        row = next(r for r in queries.reductions(store) if r.id == found.reduction_id)
        failure = next(f for f in queries.failures(store) if f.id == row.failure_id)
        place = queries.compile_by_id(store, failure.compile_id or 0)
        export(
            store,
            place,
            ExportOptions(Path(directory), formats=("repro",), imports=options.imports),
            failure,
        )
    measured = {
        "cpu": reduced - before,
        "export_cpu": cpu() - reduced,
        "runs": found.oracle_runs,
        "runs_to_nodes": progress.runs,
        "before": found.before_call_nodes,
        "nodes": found.case.total_call_nodes,
        "status": found.status,
        "passes": [asdict(item) for item in found.passes],
    }
    (Path(directory) / "measured.json").write_text(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One run of one case of any kind."""

from __future__ import annotations

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.oracle.child import graph_runner, program_runner
from torchreel.minifier.oracle.child.stages import Announce
from torchreel.minifier.oracle.protocol import ChildReport, Task


def run_case(task: Task, announce: Announce) -> ChildReport:
    """Run the case of a task; call `announce` with each stage that it enters."""
    if isinstance(task.case, SourceCase):
        return program_runner.run(task, announce)
    return graph_runner.run(task, announce)

"""One run of one case of any kind, in the worker's child."""

from __future__ import annotations

from collections.abc import Callable

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.protocol import Finding, Task
from torchreel.minifier.stages import Position


def run_case(task: Task, announce: Callable[[Position], None]) -> Finding:
    """Run the case of a task with the runner of its kind."""
    if isinstance(task.case, SourceCase):
        from torchreel.minifier.source import harness as program_runner

        return program_runner.run(task, announce)
    from torchreel.minifier import harness as graph_runner

    return graph_runner.run(task, announce)

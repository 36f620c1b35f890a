"""The data flow of a case: its calls and their operands, without sizes, literals and config.

Two cases with the same data flow mostly fail alike. So the search puts off a candidate whose data
flow was refused before, until everything else has been tried.
"""

from __future__ import annotations

from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.canonical_text import memoized
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase


def data_flow(case: AnyCase) -> int | None:
    """Return a number that is the same for cases of one data flow; None where none is known.

    In other processes it may be another one. Two data flows that share a number by accident are
    taken for one until the search looks again: that may cost a few runs.
    """
    return _digest(case.graph) if isinstance(case, Case) else None


@memoized
def _digest(graph: GraphDoc) -> int:
    """Hash the calls with their operands (all inputs are alike), the outputs, and the bodies."""
    calls = [node for node in graph.nodes if node.is_call]
    numbers = {node.name: at for at, node in enumerate(calls)}
    rows = tuple(
        (node.target, *(numbers.get(name, -1) for name in node.operands))
        for node in (*calls, graph.output)
    )
    bodies = tuple((name, _digest(inner)) for name, inner in sorted(graph.modules.items()))
    return hash((rows, bodies))

"""The errors of eager and compiled values, node by node, against the exact ones.

Called by `graph_runner` for `accuracy.analyze`, with a graph that returns the value of every node.
"""

from __future__ import annotations

import math

import torch

from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.child.eager_references import References
from torchreel.replay.accuracy.comparison import differences
from torchreel.replay.accuracy.results import Results
from torchreel.replay.accuracy.rounding import largest_error, plain
from torchreel.store.documents.jsontypes import Json


def node_errors(references: References | None, got: Results, case: Case) -> dict[str, Json]:
    """Return, by the name of each returned node, both relative errors, and whether it is wrong."""
    if references is None:
        return {}
    names = list(case.graph.output.inputs())
    evidence = references.evidence(Results.outputs)
    eager, compiled = references.plain.outputs(), got.outputs()
    found = differences(eager, compiled, evidence, case.comparator, case.imports)
    wrong = {item.output for item in found}
    exact = evidence.exact if evidence.exact is not None else eager
    return {
        name: {
            "eager": _error(exact[index], eager[index]),
            "compiled": _error(exact[index], compiled[index]),
            "wrong": index in wrong,
        }
        for index, name in enumerate(names)
    }


def _error(exact: object, value: object) -> Json:
    """Return the largest error relative to the largest element.

    None where there is nothing to measure.
    """
    if not isinstance(exact, torch.Tensor) or not isinstance(value, torch.Tensor):
        return None
    if exact.shape != value.shape or not exact.numel():
        return None
    exact, value = plain(exact), plain(value)
    scale = float(exact.abs().to(torch.float64).nan_to_num(0.0, 0.0, 0.0).max().item())
    error = largest_error(exact, value)
    return None if math.isinf(error) else error / (scale or 1.0)

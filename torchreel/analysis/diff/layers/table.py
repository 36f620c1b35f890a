"""The layers of a diff, in the order of the pipeline: one table.

Lives here: their names and what each compares.  Not here: how (one module for each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchreel.analysis.diff.layers import facts
from torchreel.analysis.diff.layers.code import code
from torchreel.analysis.diff.layers.events import events
from torchreel.analysis.diff.layers.guards import guards
from torchreel.analysis.diff.layers.stage_graphs import graphs
from torchreel.analysis.diff.layers.symbols import symbols
from torchreel.analysis.diff.report import DiffSide, LayerDiff
from torchreel.errors import UsageError

Layer = Callable[[DiffSide, DiffSide], LayerDiff]

LAYERS: dict[str, Layer] = {
    "machine": facts.machine,
    "config": facts.config,
    "frame": facts.frame,
    "symbols": symbols,
    "graphs": graphs,
    "guards": guards,
    "code": code,
    "failure": facts.failure,
    "events": events,
}
ENVIRONMENT = "environment"
"""The layer of a whole recording."""


SUMMARISED = ("frame", "failure")
"""Layers of a compile of which flight mode kept a summary alone."""

REPLAYED = ("graphs", "code", "failure", "events")
"""Layers that a replay computes anew; the others come from its checkpoint, or are missing."""


def chosen(only: Sequence[str]) -> list[str]:
    """Return the layers to compare: those asked for, or all.

    Raises UsageError for another name.
    """
    known = [ENVIRONMENT, *LAYERS]
    for name in only:
        if name not in known:
            raise UsageError(f"There is no layer {name!r}: the layers are {', '.join(known)}.")
    return [name for name in known if not only or name in only]

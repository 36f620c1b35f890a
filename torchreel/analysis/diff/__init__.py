"""Diff: what sets two compiles, recordings or stores apart, layer by layer.

Lives here: which compiles belong together (`pairs`), one module per layer, and over the recordings
of one job where its ranks part (`ranks`).  Not here: running anything (a diff reads two stores and
imports no torch), what may be spelled differently (`torchreel.replay.compare.normalise`), printing.
"""

from torchreel.analysis.diff.diff import diff
from torchreel.analysis.diff.layers.table import LAYERS
from torchreel.analysis.diff.ranks import Parting, RanksReport, diff_ranks
from torchreel.analysis.diff.report import (
    CompileDiff,
    DiffReport,
    LayerDiff,
    LayerDifference,
    RecordingDiff,
)

__all__ = [
    "LAYERS", "CompileDiff", "DiffReport", "LayerDiff", "LayerDifference", "Parting",
    "RanksReport", "RecordingDiff",
    "diff", "diff_ranks",
]  # fmt: skip

"""The passes, in phases of tiers: the one list to extend.

A tier is repeated until none of its passes takes a step; after a step in a later tier of a phase
the phase starts over. Phases follow each other, in a circle, until no pass of any phase takes a
step. Earlier ones hold what removes most for the fewest tries. `base` says what a pass is.
"""

from typing import Any

from torchreel.minifier.passes.backend import SimplerBackend
from torchreel.minifier.passes.base import Edit, Pass
from torchreel.minifier.passes.bypass import BypassByAny, BypassByEqual
from torchreel.minifier.passes.config import Ambient, Config
from torchreel.minifier.passes.cut import Chunks, Cut, Prefix
from torchreel.minifier.passes.gradients import Gradients, LessHarness
from torchreel.minifier.passes.outputs import Ends, Outputs, Suffix
from torchreel.minifier.passes.scalars import Scalars
from torchreel.minifier.passes.sizes import PlainLayout, SmallerSizes
from torchreel.minifier.passes.symbols import StaticSizes, UnusedSymbols
from torchreel.minifier.passes.unused import DeadCode, Inputs

__all__ = ["PHASES", "Edit", "Pass", "Tier", "all_passes"]

Tier = tuple[Pass[Any], ...]

PHASES: tuple[tuple[Tier, ...], ...] = (
    # how it is run: Inductor, a backward, gradients, dynamic sizes make every run slow,
    # and settings seldom matter
    (
        (SimplerBackend(), LessHarness(), Gradients(), UnusedSymbols(), StaticSizes()),
        (Config(), Ambient()),
    ),
    # what is computed
    (
        (Outputs(), Suffix(), Prefix(), BypassByEqual(), DeadCode(), Inputs()),
        (Chunks(), Ends(), Cut(), Scalars(), BypassByAny()),
    ),
    # what it is computed from
    ((SmallerSizes(1), SmallerSizes(2), SmallerSizes(3), SmallerSizes(None), PlainLayout()),),
)


def all_passes() -> list[Pass[Any]]:
    """Every pass, in the order in which they come."""
    return [item for phase in PHASES for tier in phase for item in tier]

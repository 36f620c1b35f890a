"""The passes, in tiers: the one list to extend.

A tier is repeated until none of its passes takes a step, then the next one has its turn; after any
step in a later tier the search starts over, and ends when no pass of any tier takes a step. Earlier
tiers hold what removes most for the fewest tries. `base` says what a pass is.
"""

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

__all__ = ["TIERS", "Edit", "Pass", "all_passes"]

TIERS: tuple[tuple[Pass, ...], ...] = (
    (Outputs(), Suffix(), Prefix(), BypassByEqual(), DeadCode(), Inputs()),
    (Chunks(), Ends(), Cut(), Scalars(), BypassByAny()),
    (StaticSizes(), UnusedSymbols(), LessHarness(), Gradients()),
    (SmallerSizes(1), SmallerSizes(2), SmallerSizes(3), SmallerSizes(None), PlainLayout()),
    (Config(), Ambient()),
)


def all_passes() -> list[Pass]:
    """Every pass, in the order of the tiers."""
    return [item for tier in TIERS for item in tier]

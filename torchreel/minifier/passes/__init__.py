"""The passes, in phases of tiers: the one list to extend.

A tier is repeated until none of its passes takes a step. After a step in a later tier, its phase
begins again with the first tier. The phases follow each other in a circle, until no pass of any
phase takes a step. Early phases and tiers hold the passes that remove most for the fewest tries.

`base` says what a pass is. One pass is not in the list, because it needs the message of the
failure: the search runs `named_in_message` before all others.
"""

from collections.abc import Sequence
from typing import Any

from torchreel.minifier.passes.all_plain import AllPlain
from torchreel.minifier.passes.backend import SimplerBackend
from torchreel.minifier.passes.base import Edit, Pass
from torchreel.minifier.passes.bypass import BypassByAny, BypassByEqual
from torchreel.minifier.passes.config import Ambient, DropConfigEntries
from torchreel.minifier.passes.cut import Chunks, Cut, Prefix
from torchreel.minifier.passes.dtypes import PlainerDtypes
from torchreel.minifier.passes.gradients import Gradients, LessHarness, NoGradients
from torchreel.minifier.passes.inline import InlineBodies
from torchreel.minifier.passes.lift import LiftValues
from torchreel.minifier.passes.literals import FewerArguments, FewerItems, Literals, Trips
from torchreel.minifier.passes.merge import ConstantsToInputs, MergeInputs
from torchreel.minifier.passes.operands import BodyOperands, Carries, OneBranch
from torchreel.minifier.passes.outputs import KeepAlive, LastCalls, Outputs, Suffix
from torchreel.minifier.passes.policies import FewerAnswers
from torchreel.minifier.passes.ranks import LowerRanks
from torchreel.minifier.passes.regions import Regions
from torchreel.minifier.passes.reshape import ReshapeInputs
from torchreel.minifier.passes.scalars import Scalars
from torchreel.minifier.passes.sizes import PlainContents, PlainLayout, SmallerSizes
from torchreel.minifier.passes.symbols import FewerSymbols, StaticSizes, UnusedSymbols
from torchreel.minifier.passes.unused import DeadCode, UnusedInputs
from torchreel.minifier.passes.writes import NoWrites

__all__ = ["PHASES", "Edit", "Pass", "Phases", "Tier", "all_passes"]

Tier = tuple[Pass[Any], ...]
Phases = Sequence[Sequence[Tier]]

PHASES: tuple[tuple[Tier, ...], ...] = (
    # how it is run: Inductor, a backward, gradients, dynamic sizes make every run slow
    ((SimplerBackend(), LessHarness(), NoGradients(), UnusedSymbols(), StaticSizes()),),
    # what is computed
    (
        (Trips(),),
        (Outputs(), Suffix(), Prefix(), BypassByEqual(), DeadCode(), BodyOperands()),
        (Chunks(), InlineBodies(), OneBranch(), Regions(), Carries()),
        (LastCalls(), Cut(), KeepAlive(), LiftValues(), Scalars(), BypassByAny(), ReshapeInputs()),
    ),
    # what it is computed from, and with which settings: they seldom matter, and runs are fast now
    (
        (AllPlain(), UnusedInputs(), MergeInputs(), ConstantsToInputs()),
        (
            FewerSymbols(),
            Gradients(),
            DropConfigEntries(),
            Ambient(),
            FewerAnswers(),
            FewerArguments(),
            FewerItems(),
        ),
        (SmallerSizes(1), SmallerSizes(2), SmallerSizes(3), SmallerSizes(None), LowerRanks()),
        (PlainLayout(), PlainContents(), PlainerDtypes()),
        (NoWrites(), Literals()),
    ),
)


def all_passes() -> list[Pass[Any]]:
    """Return every pass, in the order in which they come."""
    return [item for phase in PHASES for tier in phase for item in tier]

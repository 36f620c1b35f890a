"""The passes over programs, in phases of tiers, as `minifier.passes` has them for graphs."""

from torchreel.minifier.passes import Tier
from torchreel.minifier.source.passes.arguments import Arguments, Parameters
from torchreel.minifier.source.passes.blocks import Blocks, Ranges
from torchreel.minifier.source.passes.classes import Flatten, MergeInstances, MergeValues
from torchreel.minifier.source.passes.inline import InlineFunctions, InlineVariables
from torchreel.minifier.source.passes.numbers import Numbers, SingleNumbers
from torchreel.minifier.source.passes.operands import ConstantOperands, HoistOperands, OwnCalls
from torchreel.minifier.source.passes.settings import SimplerCall
from torchreel.minifier.source.passes.statements import (
    AttributeAssignments,
    Statements,
    Unused,
    Values,
)

__all__ = ["PHASES"]

PHASES: tuple[tuple[Tier, ...], ...] = (
    # without a compiler behind Dynamo every run is short
    ((SimplerCall(),),),
    # what is computed
    (
        (Unused(), MergeInstances(), Ranges(), OwnCalls()),
        (Statements(), Blocks(), Values()),
        (Flatten(), MergeValues(), InlineFunctions(), Parameters()),
        (HoistOperands(), Arguments(), InlineVariables()),
        (AttributeAssignments(), ConstantOperands()),
    ),
    # what it is computed from
    ((Numbers(), SingleNumbers()),),
)

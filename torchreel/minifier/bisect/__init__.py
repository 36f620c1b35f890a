"""Bisection: the stage or pass of the compiler without which a failure is gone.

Public names are loaded on first use. `search.bisect` climbs the ladder of backends, then takes
parts of the guilty one away, then counts their applications; `steps` says what a step is. Nothing
is written outside of the store and of the worker's own directory. Called by the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.minifier.bisect.results import Bisection, StepResult
    from torchreel.minifier.bisect.search import bisect, take_step
    from torchreel.minifier.bisect.steps import BisectStep, parse_step

__all__ = ["BisectStep", "Bisection", "StepResult", "bisect", "parse_step", "take_step"]

_LAZY = {
    "Bisection": "results",
    "StepResult": "results",
    "BisectStep": "steps",
    "parse_step": "steps",
    "bisect": "search",
    "take_step": "search",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.minifier.bisect' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.minifier.bisect.{_LAZY[name]}"), name)

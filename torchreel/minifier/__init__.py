"""The minifier: shrinks a failing case and exports what is left as a script.

Each folder is a room; upper ones import lower ones, and the import contracts check that:

- `minify`: the whole way, and `repro`: the files for other people
- `explain`, `bisect`: the neighbourhood of a smallest case, and the guilty part of the compiler
- `initial_cases`, `accuracy`: the cases to start with, for a failure and for a wrong result
- `search`: passes repeated to a fixpoint, over an oracle with a cache
- `source`, `scripts`: programs from recorded frames, and cases as scripts
- `storage`: verdicts, cases and findings in the store
- `oracle`: a case in a child process; `hangs`: the same for what does not end
- `passes`, `results`, `options`, `cases`: edits, plain data, choices, and what is reduced

To read it, start with `minify`, then `search.search` and `passes.base`. Public names are loaded on
first use. Not here: how a compile is recorded or replayed. Called by the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.minifier.cases.case import Case
    from torchreel.minifier.minify import minify
    from torchreel.minifier.options import Budget
    from torchreel.minifier.results.reductions import Listener, MinifyResult, ProgressEvent

__all__ = ["Budget", "Case", "Listener", "MinifyResult", "ProgressEvent", "minify"]

_LAZY = {
    "Case": "cases.case",
    "Budget": "options",
    "Listener": "results.reductions",
    "ProgressEvent": "results.reductions",
    "MinifyResult": "results.reductions",
    "minify": "minify",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'torchreel.minifier' has no attribute {name!r}")
    return getattr(import_module(f"torchreel.minifier.{_LAZY[name]}"), name)

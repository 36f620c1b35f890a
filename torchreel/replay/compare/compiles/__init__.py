"""Compares a recorded compile with its replay: the event logs, graphs, output code and failure.

Lives here: the comparison as a whole (`whole`), of event logs (`event_logs`), of graphs and code
(`items`) and of failures (`failures`), and the first difference as text (`differences`).  Not here:
one event against another (`compare.events`), what may differ (`normalise`, `rules`), running the
replay (`launch`).

Both sides are read from stores, through the same queries: a replay is a recording.  Graphs are
compared by the bytes of their portable form, output code by its normalised bytes, a failure by its
signature and what it says.
"""

from torchreel.replay.compare.compiles.sides import EventComparison, Question, Side
from torchreel.replay.compare.compiles.whole import compare, is_bare, without_kernels

__all__ = ["EventComparison", "Question", "Side", "compare", "is_bare", "without_kernels"]

"""Two recordings side by side, as a page: what matches, what differs, and where they part.

Lives here: the document of such a page (`document`), how it is made (`build`), and texts side by
side (`texts`).  Not here: what counts as a difference (`torchreel.analysis.diff`).
"""

from torchreel.report.comparison.build import build_comparison

__all__ = ["build_comparison"]

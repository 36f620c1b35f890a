"""A recording as one HTML file, to be looked at in a browser.

Lives here: the document (`document`, `build`) and what it says of each compile (`compiles`), that
of two recordings side by side (`comparison`), the page that shows them (`page`, `assets`), the same
as a folder (`site`) or from a server (`serving`).  Not here: the command
(`torchreel.commands.report`).  Torch is not imported, and nothing of the store is run.
"""

from torchreel.report.build import MAX_BYTES, ReportOptions, build
from torchreel.report.comparison import build_comparison
from torchreel.report.page import render
from torchreel.report.site import site_files

__all__ = ["MAX_BYTES", "ReportOptions", "build", "build_comparison", "render", "site_files"]

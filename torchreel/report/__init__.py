"""A recording as one HTML file, to be looked at in a browser.

Lives here: the document (`document`, `build`), and the page that shows it (`page`, `assets`).  Not
here: the command (`torchreel.commands.report`).  Reads a store through `torchreel.store` alone:
torch is not imported, and nothing of the store is run.
"""

from torchreel.report.build import MAX_BYTES, ReportOptions, build
from torchreel.report.page import render

__all__ = ["MAX_BYTES", "ReportOptions", "build", "render"]

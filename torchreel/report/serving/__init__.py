"""A report that is served while its store is written.

Lives here: what is answered (`live`), and the server (`server`): on this machine alone, for who has
the token.  Not here: the command (`torchreel.commands.serve`).
"""

from torchreel.report.serving.live import LiveReport
from torchreel.report.serving.server import ReportServer

__all__ = ["LiveReport", "ReportServer"]

"""`torchreel import`: read a directory that TORCH_TRACE filled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchreel.commands.options import StoreOption


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    output: StoreOption = None,
) -> None:
    """Read a directory that TORCH_TRACE filled into a store.

    Each log file becomes a recording of kind 'import', to be listed, shown and searched as any
    other; it has no checkpoints to replay from. What can't be read is counted as lost, and nothing
    of it is executed.
    """
    from torchreel.commands.views import trace as view
    from torchreel.recorder.trace_import import import_trace
    from torchreel.store.addressing import default_store

    target = output or default_store()
    view.report_import(import_trace(directory, target), target)

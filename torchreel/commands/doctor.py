"""`torchreel doctor`: look for everything that torchreel needs."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import JsonOption


def doctor(
    store: Annotated[str | None, typer.Argument(metavar="STORE", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Look for everything that torchreel needs.

    Python, torch, the C++ compiler, the functions of torch that the recorder replaces, a writable
    store; exits with 1 when something is missing.
    """
    from torchreel.commands.views.doctor import report
    from torchreel.doctor import examine

    raise typer.Exit(report(examine(store), json=json))

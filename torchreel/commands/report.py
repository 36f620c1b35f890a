"""`torchreel report`: write a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, ForceOption


def report(
    address: AddressArgument = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    max_size: Annotated[
        str,
        typer.Option(
            "--max-size", metavar="SIZE", help="Leave out details of compiles above this."
        ),
    ] = "5M",
    force: ForceOption = False,
) -> None:
    """Write a page for a browser: every compile of a store, a recording or an address.

    Compiles by the user's stack, failures with what led to them, and of each compile the stages,
    the graphs with the line of the program, the node and the kernel that belong together, guards,
    symbols, graph breaks and config. One file, which asks no server for anything. Nothing of the
    store is executed, imported or resolved, and torch is not imported.
    """
    from torchreel.commands.views import report as view
    from torchreel.recorder.settings import parse_size
    from torchreel.store import Store, parse

    where = parse(address)
    view.refuse_overwriting(output, where, force=force)
    with Store.open(where.store) as store:
        view.report(store, where, output, parse_size(max_size))

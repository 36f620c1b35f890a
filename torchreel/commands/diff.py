"""`torchreel diff`: compare two compiles, recordings, stores, or the ranks of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import JsonOption
from torchreel.errors import UsageError


def diff(
    addresses: Annotated[
        list[str],
        typer.Argument(metavar="ADDRESS...", help="Two compiles, recordings or stores."),
    ],
    only: Annotated[
        str, typer.Option("--only", metavar="LAYER,...", help="Compare these layers alone.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Show every difference, not the first of each layer.")
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Compare the ranks of one job, in one store or more.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what sets two compiles, recordings or stores apart.

    Layer by layer: environment, machine, config, frame, symbols, graphs (whatever their nodes and
    symbols are called), guards, code, failure, and the first event in which the event logs part.
    Nothing is executed, and torch is not imported. Exits with 0 when there is no difference, 1 when
    there is one.

    With '--ranks', name the first compile, graph, guard, symbol or cache decision in which the
    ranks of a distributed job part.
    """
    from contextlib import ExitStack

    from torchreel.analysis.diff import diff as run
    from torchreel.analysis.diff import diff_ranks
    from torchreel.commands.views import diff as view
    from torchreel.store import Store, parse

    if not ranks and len(addresses) != 2:
        raise UsageError(f"A diff is between two addresses, not {len(addresses)}: name A and B.")
    places = [parse(text) for text in addresses]
    with ExitStack() as stack:
        sides = [(stack.enter_context(Store.open(where.store)), where) for where in places]
        if ranks:
            status = view.report_ranks(diff_ranks(sides), json=json)
        else:
            layers = [name.strip() for name in only.split(",") if name.strip()]
            status = view.report(run(sides[0], sides[1], layers), every=every, json=json)
    raise typer.Exit(status)

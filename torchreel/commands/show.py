"""`torchreel show`: show a compile."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption


def show(
    address: AddressArgument = "",
    graph: Annotated[
        str | None,
        typer.Option("--graph", metavar="STAGE[:PARTITION]", help="Print the graphs of a stage."),
    ] = None,
    code: Annotated[bool, typer.Option("--code", help="Print the generated code.")] = False,
    events: Annotated[
        bool, typer.Option("--events", help="List what is in the event log.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Print the traceback.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what is known about a compile.

    Frame, stages, graphs, failure, config, environment, and what was lost. Nothing of the store is
    executed, imported or resolved, and torch is not imported.
    """
    from torchreel.commands.views.show import ShowOptions
    from torchreel.commands.views.show import show as print_compile
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        print_compile(store, where, ShowOptions(graph, code, events, traceback, json))

"""`torchreel ls`: list recordings and compiles."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    CsvOption,
    JsonOption,
    LinesOption,
    TableOption,
)

_MOST = 1_000_000


def ls(
    address: AddressArgument = "",
    json: JsonOption = False,
    nl: LinesOption = False,
    csv: CsvOption = False,
    table: TableOption = False,
    every: Annotated[bool, typer.Option("--all", help="List the replays in it, too.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=_MOST, metavar="N", help="List the newest N alone.")
    ] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="RECORDING", help="List those older than this number."),
    ] = None,
) -> None:
    """List the newest recordings of a store and their compiles.

    What is older is counted. Replays are recordings too: they are counted, and listed with
    '--all'.
    """
    from torchreel.analysis.listing import PageRange
    from torchreel.commands.rendering import listing
    from torchreel.commands.views.ls import ls as print_listing
    from torchreel.store import Store, parse

    kind = listing.chosen(json=json, nl=nl, csv=csv, table=table)
    where = parse(address)
    with Store.open(where.store) as store:
        print_listing(store, where, kind, PageRange(limit, before, every))

"""`torchreel ls`: list recordings and compiles."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption


def ls(
    address: AddressArgument = "",
    json: JsonOption = False,
    nl: Annotated[bool, typer.Option("--nl", help="Write JSON, one row a line.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Write tables (the default).")] = False,
    every: Annotated[bool, typer.Option("--all", help="List the replays in it, too.")] = False,
) -> None:
    """List the recordings of a store and their compiles.

    Replays are recordings too: they are counted, and listed with '--all'.
    """
    from torchreel.commands.rendering import listing
    from torchreel.commands.views.ls import ls as print_listing
    from torchreel.store import Store, parse

    kind = listing.chosen(json=json, nl=nl, csv=csv, table=table)
    where = parse(address)
    with Store.open(where.store) as store:
        print_listing(store, where, kind, every)

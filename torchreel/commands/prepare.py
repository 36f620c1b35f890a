"""`torchreel prepare`: make the tables of a store on a server."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import without_password


def prepare(
    store: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="postgresql+psycopg://USER@HOST/DATABASE",
            show_default=False,
            callback=without_password,
        ),
    ],
) -> None:
    """Make the tables of a store on a server, or bring those of an older version up to date.

    The database has to be there, and the user has to be its owner. Nothing that is in it is lost;
    where the tables are there already, nothing is done.
    """
    from torchreel.commands.rendering import streams
    from torchreel.store import Store

    with Store.open(store, create=True) as made:
        streams.say(f"{made.target} is a store.")
        streams.next_command("torchreel", "ls", made.target)

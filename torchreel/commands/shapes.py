"""`torchreel shapes`: show the symbols of a compile."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption, number_option


def shapes(
    address: AddressArgument = "",
    at: Annotated[
        int | None,
        number_option("--at", "EVENT", "As it was right after this event."),
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="EVENT EVENT", help="What changed between two events."),
    ] = None,
    env: Annotated[
        int | None,
        number_option("--env", "N", "Another ShapeEnv of the compile, by number."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the symbols of a compile as of any event.

    Value, range, replacement, source and the user's line of each, the guards and the deferred
    runtime asserts. Without an event, as they were at the end. Read from the event log: torch is
    not imported.
    """
    from torchreel.commands.views import shapes as view
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        if diff is not None:
            view.shapes_diff(store, where, diff, env, json)
        else:
            view.shapes(store, where, at, env, json)

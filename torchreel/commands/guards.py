"""`torchreel guards`: list the guards of a compile, or check inputs against them."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption


def guards(
    address: AddressArgument = "",
    described: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="'NAME: WHAT'", help="An input, as in 'x: f32[4, 17]' or 'n: 5'."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the guards of a compile, or those an input passes.

    Each '--input' describes one: a tensor by dtype and sizes, and where they are not the ordinary
    ones by 'strides [...]', a device, 'requires_grad', 'parameter'; anything else by its value.
    Without the model, what looks at anything but the described inputs is 'unknown', never 'pass'.
    Exits with 1 when a guard fails.
    """
    from torchreel.commands.views.guards import guards as print_guards
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        status = print_guards(store, where, described or (), json)
    raise typer.Exit(status)

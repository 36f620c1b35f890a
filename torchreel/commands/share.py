"""`torchreel share`: write the slice of a recording that a failure needs, to give away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, ForceOption, JsonOption


def share(
    address: AddressArgument = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The bundle to write.")
    ] = Path("bundle.db"),
    map_path: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar="FILE", help="Where the names go; beside the bundle by default."
        ),
    ] = None,
    minimise: Annotated[
        float | None,
        typer.Option("--minimise", metavar="SECONDS", help="Reduce it first, for so long at most."),
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Write it also where it does not fail any more.")
    ] = False,
    read_back: Annotated[
        Path | None,
        typer.Option(
            "--read-back",
            metavar="MAP",
            help="Print the text file ADDRESS ('-': stdin) with the names of this map.",
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write what a failure needs, and nothing else.

    The bundle is a store that may leave, built of operators, dtypes, sizes, strides and the config
    that matters, from the simplest case known: nothing of the recording is copied. Names become
    pseudonyms, and texts, numbers and settings that the failure does not need go. The names stay
    here, in a file of their own. All that leaves is printed, and the bundle is written only if it
    still shows the failure: in a fresh process, confined, with torch alone.

    With '--read-back MAP', print an answer with the real names: 'torchreel share answer.txt
    --read-back bundle.map.json'.

    Exits with 1 when the bundle does not show the failure.
    """
    from torchreel.commands.views import share as view

    if read_back is not None:
        view.read_back(address, read_back)
        return
    from torchreel.commands.rendering import streams
    from torchreel.sharing.share import ShareOptions
    from torchreel.sharing.share import share as run

    options = ShareOptions(
        output,
        map_path,
        force=force,
        minimise=minimise,
        unverified=unverified,
        say=streams.say,
    )
    raise typer.Exit(view.report(run(address, output, options=options), json=json))

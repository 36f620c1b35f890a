"""`torchreel audit`: find what should not leave in a store or a bundle."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import JsonOption


def audit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A store or a bundle.")],
    everything: Annotated[
        bool, typer.Option("--all", help="List every finding, not five of each place or kind.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find what should not leave in a store or a bundle.

    Looks at every column and every blob, unpacked, and at the space that the file does not use.
    What is not known to be harmless at its place is listed: names, paths, users, hosts,
    environment, source text, secrets, numbers, and texts outside torch's own words.

    Exits with 0 when nothing was found, 1 otherwise, 3 when the file can't be read.
    """
    from torchreel.commands.rendering.waiting import while_slow
    from torchreel.commands.views import audit as view
    from torchreel.sharing.audit.audit import audit as run
    from torchreel.store.passwords import hidden

    with while_slow(f"reading {hidden(file)}"):
        found = run(file)
    raise typer.Exit(view.report(found, everything=everything, json=json))

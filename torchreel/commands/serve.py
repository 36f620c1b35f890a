"""`torchreel serve`: show a report in a browser while its store is written."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument


def serve(
    address: AddressArgument = "",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: a free one.")
    ] = 0,
) -> None:
    """Serve the page of a report on this machine, live.

    Listens on 127.0.0.1 alone, and answers requests for an address with a random token, which is
    printed; read-only. The page shows new compiles as they come, and says so when the server is
    gone. Nothing of the store is executed, imported or resolved, and torch is not imported. Ends
    with Ctrl-C.
    """
    from torchreel.commands.views import serve as view
    from torchreel.store import parse

    view.serve(parse(address), port)

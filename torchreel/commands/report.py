"""`torchreel report`: write a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchreel.commands.options import ForceOption
from torchreel.errors import UsageError

if TYPE_CHECKING:
    from torchreel.store import Address


def report(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ADDRESS [OTHER]",
            help="STORE[#RECORDING[/COMPILE]]; with OTHER, both side by side.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    max_size: Annotated[
        str,
        typer.Option(
            "--max-size", metavar="SIZE", help="Leave out details of compiles above this."
        ),
    ] = "5M",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--site", metavar="DIR", help="Write a folder instead, with the details of all."
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a store or a compile as a page for a browser.

    All compiles by the user's stack, failures with what led to them, and of each compile the
    stages, the graphs with the line of the program, the node and the kernel that belong together,
    guards, symbols, graph breaks and config. One file, which asks no server for anything. Nothing
    of the store is executed, imported or resolved, and torch is not imported.

    Of two addresses: which of their compiles differ, in what, and where they part first. Exits with
    1 where they differ, as 'torchreel diff' does.

    Details that have no room in the page are left out, and it says so; with '--site', a folder has
    those of all compiles, each in a file that is read when it is looked at; of two addresses, one
    folder for each beside the page that compares them.
    """
    from torchreel.commands.views import report as view
    from torchreel.recorder.settings import parse_size
    from torchreel.store import Store, parse

    names = addresses or [""]
    if len(names) > 2:
        raise UsageError(f"A page shows one address, or two side by side, not {len(names)}.")
    places = [parse(name) for name in names]
    if folder is not None:
        _write_site(places, folder, parse_size(max_size), force=force)
        return
    for where in places:
        view.refuse_overwriting(output, where, force=force)
    if len(places) == 2:
        _compare(places[0], places[1], output, parse_size(max_size))
        return
    with Store.open(places[0].store) as store:
        view.report(store, places[0], output, parse_size(max_size))


def _compare(left: Address, right: Address, output: Path, max_bytes: int) -> None:
    from torchreel.commands.views import report as view
    from torchreel.store import Store

    with Store.open(left.store) as one, Store.open(right.store) as other:
        status = view.compare((one, left), (other, right), output, max_bytes)
    raise typer.Exit(status)


def _write_site(places: list[Address], folder: Path, max_bytes: int, *, force: bool) -> None:
    from torchreel.commands.views import report as view
    from torchreel.store import Store

    first, last = places[0], places[-1]
    with Store.open(first.store) as one, Store.open(last.store) as other:
        if len(places) == 1:
            view.write_site(one, first, folder, force=force)
        else:
            sides = (one, first), (other, last)
            raise typer.Exit(view.compare_in_folder(*sides, folder, max_bytes, force=force))

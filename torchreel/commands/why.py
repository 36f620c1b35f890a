"""`torchreel why` and its short forms: tell what led to a symbol, a guard or a recompile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption

if TYPE_CHECKING:
    from torchreel.store import Address


def why(
    words: Annotated[list[str], typer.Argument(metavar="[ADDRESS] WHAT", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Tell what led to a symbol, a guard, a recompile, a specialisation or a graph break.

    WHAT is a symbol (s77), a piece of a guard's code ("L['x'].size()[0]") or its type, an event
    (@417), or one of 'recompile', 'specialised' and 'graph-break'; these three are about the whole
    recording when ADDRESS names no compile. The answer is a chain of events, each with its address
    and the line of the program that it was for. Nothing is run again.
    """
    from torchreel.commands.views import why as view

    _why(*view.question(words), json)


def why_recompile(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS recompile'.

    Which guard of which cache entry did not hold, and for which line it was made.
    """
    _why_topic(address, "recompile", json)


def why_specialised(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS specialised'.

    Which event made a dynamic size static, and for which line.
    """
    _why_topic(address, "specialised", json)


def why_graph_break(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS graph-break'.

    What could not be traced, with the user's stack and torch's hints.
    """
    _why_topic(address, "graph-break", json)


def _why_topic(address: str, topic: str, json: bool) -> None:
    from torchreel.store import parse

    _why(parse(address), topic, json)


def _why(where: Address, what: str, json: bool) -> None:
    from torchreel.commands.views.why import why as print_stories
    from torchreel.store import Store

    with Store.open(where.store) as store:
        print_stories(store, where, what, json)

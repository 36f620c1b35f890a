"""`torchreel why` and its short forms: tell what led to a symbol, a guard or a recompile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from torchreel.commands.options import AddressArgument, JsonOption

if TYPE_CHECKING:
    from torchreel.store import Address


def why(
    words: Annotated[list[str], typer.Argument(metavar="[ADDRESS] WHAT", show_default=False)],
    vs: Annotated[
        str, typer.Option("--vs", metavar="ADDRESS", help="For 'cache': compare with this one.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Tell what led to a symbol, guard, recompile or miss.

    WHAT is a symbol (s77), a piece of a guard's code ("L['x'].size()[0]") or its type, an event
    (@417), or one of 'recompile', 'specialised', 'graph-break' and 'cache'; these four are about
    the whole recording when ADDRESS names no compile. The answer is a chain of events, each with
    its address and the line of the program that it was for. For 'cache' it is what each lookup in
    torch's caches found, and the factors in which its key differs from the nearest one, earlier or
    of the recording that --vs names. Nothing is run again.
    """
    from torchreel.commands.views import why as view

    where, what = view.question(words)
    if what == _CACHE:
        _why_cache(where, vs, json)
    elif vs:
        raise typer.BadParameter("it is for the question 'cache' alone", param_hint="--vs")
    else:
        _why(where, what, json)


_CACHE = "cache"


def _why_cache(where: Address, vs: str, json: bool) -> None:
    from torchreel.commands.views.cache_keys import why_keys
    from torchreel.store import Store, parse

    with ExitStack() as stack:
        other = parse(vs) if vs else None
        store = stack.enter_context(Store.open(where.store))
        beside = other and (stack.enter_context(Store.open(other.store)), other)
        why_keys(store, where, beside, json=json)


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

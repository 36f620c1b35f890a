"""What a compile made of its real inputs after its Dynamo graph was taken.

AOTAutograd turns them into fake ones once more.  For a view of a jagged tensor that makes symbols
and guards: torch replays the view's own functions on symbols that stand for what these hold.  A
replay from the graph begins with fake inputs.  Lives here: how to tell.  Called by `replay`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile, Event

_EPHEMERAL = "<ephemeral"
"""How the source of a symbol begins that is no property of an input."""


def refusal(store: Store, compile: Compile) -> str:
    """Why a replay from the graph of this compile parts from it; '' where this is not why."""
    made = [
        event
        for event in queries.events(store, compile, "create_symbol")
        if event.stage == "pre_grad" and _source(event).startswith(_EPHEMERAL)
    ]
    if not made:
        return ""
    return (
        "an input is a view whose base is a jagged tensor: AOTAutograd converted the real one once "
        f"more and made {len(made)} symbols for what its view functions hold (event {made[0].seq} "
        "on), which fake inputs do not lead to"
    )


def _source(event: Event) -> str:
    data = event.data.get("create_symbol") if isinstance(event.data, Mapping) else None
    return str(data.get("source")) if isinstance(data, Mapping) else ""

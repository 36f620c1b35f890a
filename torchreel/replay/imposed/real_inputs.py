"""Finds symbols and guards that came from real inputs after the Dynamo graph was taken.

AOTAutograd turns them into fake ones once more, and finds those that Dynamo made.  Not so for a
view of a jagged tensor, whose own functions torch replays on symbols that stand for what they hold;
and not for a graph of `specialize_on`, which is compiled once Dynamo's fake tensors are gone.  Both
make symbols and guards, where a replay from the graph begins with fake inputs.  Lives here: how to
tell.  Called by `replay`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.fake_tensors import FakeConversion
from torchreel.events.shape_env import BackedSymbol
from torchreel.replay.compare.rules import EXCUSES, FAKE_INPUTS, SCOPES
from torchreel.replay.compare.selection import EventSelection, Point
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile, Event

_EPHEMERAL = "EphemeralSource"
"""The source of a symbol that is no property of an input."""


def conversion(store: Store, compile: Compile, point: Point) -> list[Event]:
    """Return the events by which AOTAutograd converts real inputs, right after a checkpoint."""
    selected = EventSelection(SCOPES[point.entry], point, EXCUSES)
    found = []
    for event in queries.events(store, compile):
        sifted = selected.sift(event)
        if sifted is not None and sifted.aside == FAKE_INPUTS:
            found.append(event)
    return found


def static(events: Sequence[Event]) -> list[bool]:
    """Return, for each input that a `conversion` converts, True if all of its sizes became numbers.

    A NumPy array is wrapped into a tensor twice, and what Dynamo remembers of it is the second
    time, when no size is dynamic.
    """
    found = []
    for event in events:
        fields = event.fields
        if isinstance(fields, FakeConversion) and fields.source is not None:
            sizes = fields.context.get("dynamic_sizes") if fields.context else None
            policies = sizes if isinstance(sizes, list) else [None]
            found.append(not fields.memo and all(one == "STATIC" for one in policies))
    return found


def refusal(events: Sequence[Event]) -> str:
    """Return the reason why a replay can't repeat a conversion of real inputs; '' if it can."""
    made = [event for event in events if event.kind == BackedSymbol.kind]
    if not made:
        return ""
    first = made[0].seq
    text = f"made {len(made)} symbols for %s (event {first} on), which fake inputs do not lead to"
    if any(map(_is_ephemeral, made)):
        return (
            "an input is a view whose base is a jagged tensor: AOTAutograd converted the real one "
            f"once more and {text % 'what its view functions hold'}"
        )
    return (
        "this graph was compiled apart from the call of Dynamo that traced it, as those of "
        f"specialize_on are: AOTAutograd converted the real inputs anew and {text % 'their sizes'}"
    )


def _is_ephemeral(event: Event) -> bool:
    return isinstance(event.fields, BackedSymbol) and _EPHEMERAL in str(event.fields.sources)

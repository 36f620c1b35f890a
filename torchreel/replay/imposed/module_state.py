"""Finds state of modules that a frame read and that is missing in its replay.

A bundle holds a frame, and of the modules that it refers to the containers that its guards look at
(a registry that each new model enters), if these can be pickled.  Lives here: how to tell from the
guards of both recordings that something else was there.  Called by `sequence`.
"""

from __future__ import annotations

import re

from torchreel.events.guards import Guard
from torchreel.replay.compare.normalise_dynamo import DynamoNormaliser
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

_MEMBER = re.compile(r"G\['__import_(\w+)'\]\.(\w+)")
_ID = re.compile(r"\b\d{6,}\b")
_CONTAINERS = ("DICT_", "SEQUENCE_", "TUPLE_", "SET_", "CONSTANT_MATCH", "EQUALS_MATCH")
"""Types of guards, by their beginnings, on what a container holds."""


def not_found_again(
    recorded: tuple[Store, Compile], replayed: tuple[Store, Compile | None]
) -> list[str]:
    """Return the names of modules' members whose content was another when it was recorded."""
    other, again = replayed
    if again is None:
        return []
    ours, theirs = _contents(*recorded), _contents(other, again)
    both = [name for name in ours if name in theirs]
    return [name for name in both if ours[name] != theirs[name]]


def _contents(store: Store, compile: Compile) -> dict[str, set[str]]:
    """Return, by the name of a module's member: what the guards say that it holds."""
    found: dict[str, set[str]] = {}
    for event in queries.events(store, compile, Guard.kind):
        assert isinstance(event.fields, Guard)
        member = _MEMBER.search(event.fields.expression)
        if member is None or not event.name.startswith(_CONTAINERS):
            continue
        name = f"{member[1].replace('_dot_', '.')}.{member[2]}"
        # A set prints in the order of a process.
        lines = map(DynamoNormaliser().text, event.fields.code)
        found.setdefault(name, set()).update(_ID.sub("ID", line) for line in lines)
    return found


def refusal(names: list[str]) -> str:
    """Return the reason why a frame that read these members of modules is not replayed."""
    return (
        f"the frame read {', '.join(names)}, which the program had filled or changed after the "
        "import, and which could not be kept with the frame. Name a module that does the same with "
        "--import MODULE, or replay from --entry graph"
    )

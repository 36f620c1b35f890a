"""Events of what the ranks of a program tell each other while they compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import EventType, Nest


class LocalState(EventType, frozen=True):
    """This rank is about to tell the others what it saw; on disk soon, for a rank that does not
    answer stops all the others."""

    kind = "collective.local"
    paged = False

    rank: int
    """This rank."""
    size: int
    """Number of ranks."""
    state: Mapping[str, Nest]
    """The rank's inputs, by their Sources: `scalar`, `size` and `stride`, with 'dynamic'
    for what is to vary (or is no such thing at all), null for what is not known, and 'size *
    stride of N' for a stride that another dimension makes."""


class GatheredState(EventType, frozen=True):
    """The inputs of one of the ranks, this one included; part of a `collective.local`."""

    kind = "collective.gathered"
    paged = False

    rank: int
    """The rank."""
    state: Mapping[str, Nest]
    """The rank's inputs, by their Sources: `scalar`, `size` and `stride`, with 'dynamic'
    for what is to vary (or is no such thing at all), null for what is not known, and 'size *
    stride of N' for a stride that another dimension makes."""


class CollectiveOutcome(EventType, frozen=True):
    """The exchange ended; part of a `collective.local`."""

    kind = "collective.outcome"
    paged = False

    outcome: str
    """'restart' (`frame.restart` follows), or 'failed'."""
    error: str | None
    """Class and message of what went wrong; null for a restart."""
    differing: Sequence[str]
    """Sources that are not the same on all ranks, or not on all of them."""


class MergedState(EventType, frozen=True):
    """An input, as all ranks now agree to compile it; the name is its Source."""

    kind = "collective.merged"

    own: Nest
    """This rank's: `scalar`, `size`, `stride`."""
    merged: Nest
    """The merged one, in the same form."""

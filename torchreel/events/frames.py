"""Events of what Dynamo does with a frame before, between and instead of tracing it."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.events.event import EventType


class CacheSize(EventType, frozen=True):
    """A frame without a fitting cache entry is to be compiled."""

    kind = "frame.cache"
    paged = False

    entries: int
    """Entries in the frame's cache, in this isolated region."""
    same_objects: int
    """Those of them whose ID_MATCH objects are this frame's (the limit counts these)."""
    all_regions: int | None
    """Entries in all regions."""
    exceeded: str
    """The config limit that forbids another entry, or ''."""
    limit: int | None
    """Its value, or that of `recompile_limit`."""


class Recompile(EventType, frozen=True):
    """The frame has been compiled before; part of it is one `frame.cache_miss` per entry."""

    kind = "frame.recompile"
    paged = False

    entries: int
    """Number of cache entries that are asked why they can't be reused."""


class CacheMiss(EventType, frozen=True):
    """A cache entry could not be reused; the name is the compile that it came from."""

    kind = "frame.cache_miss"
    paged = False

    reason: str
    """Torch's reason."""
    guards: Sequence[str]
    """Code parts of the guard that failed (as in `guards.guard` of that compile), or what the guard
    itself says of its failure; empty when none failed."""
    source: str | None
    """The guarded expression, where the guard names it."""
    held: int | None
    """Number of guards that held before it; null when none was asked."""


class FrameStart(EventType, frozen=True):
    """An attempt at a frame begins; its stack is that of the frame's caller."""

    kind = "frame.start"
    paged = False

    file: str
    """The file of the code object."""
    line: int
    """Its first line."""
    qualname: str
    """Its qualified name."""
    arguments: Sequence[str]
    """Names of the arguments, in order."""
    free: Sequence[str]
    """Names from enclosing functions."""
    globals: Sequence[str]
    """Names of globals and attributes that the code refers to."""
    lines: int
    """The last line of the code."""
    instructions: int
    """Size of its bytecode, in bytes."""
    resumes: bool
    """True if it is a function that Dynamo made to go on after a graph break."""


class Restart(EventType, frozen=True):
    """An attempt is given up for another one that knows more."""

    kind = "frame.restart"
    paged = False

    type: str
    """Class of torch._dynamo.exc that says so."""
    reason: str | None
    """The reason, in torch's words."""
    attempt: int
    """The number of the attempt that is given up."""


class SpeculationFailed(EventType, frozen=True):
    """Tracing past an instruction failed: the next attempt breaks the graph there."""

    kind = "frame.speculation_failed"
    paged = False

    file: str
    """File of the instruction."""
    line: int
    """Its line."""
    offset: int
    """Its number in Dynamo's list of instructions."""
    instruction: str
    """Its opcode."""
    reason: str | None
    """The reason, in torch's words; null at an instruction that can't be traced at all."""


class GraphBreak(EventType, frozen=True):
    """Something could not be traced; the stack is the user's."""

    kind = "frame.graph_break"
    paged = False

    type: str
    """Torch's name for this sort of break ('' before it had one)."""
    reason: str
    """The whole explanation, with hints."""
    outcome: str
    """'handled' (a partial graph or an eager frame), or 'raised' (a full graph was asked for)."""


class FrameSkip(EventType, frozen=True):
    """A frame is left to Python; the name is its function."""

    kind = "frame.skip"

    reason: str | None
    """The reason, in torch's words; null in torch 2.12, which has none."""
    file: str
    """The file of the code object."""
    line: int
    """Its first line."""
    strategy: Sequence[str]
    """The strategies for this frame and for those that it calls, from now on."""


class Hang(EventType, frozen=True):
    """A compile was not over after the time limit; the payload has the stacks of all threads."""

    kind = "hang"
    paged = False

    seconds: float
    """The limit of --compile-timeout."""

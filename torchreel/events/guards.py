"""Events of the guards of a compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import field

from torchreel.events.event import EventType, Nest, SourceDocument


class GuardManager(EventType, frozen=True):
    """The guards of a compile are put together; the events of its guards are part of it. The tree
    itself is the event `dynamo_cpp_guards_str` that follows."""

    kind = "guards.manager"

    guards: int
    """Guards that are kept."""
    left_out: int
    """Guards that a filter of the program's took out."""
    key_order: Sequence[SourceDocument]
    """Sources of the dicts whose order of keys is guarded."""
    no_aliasing: Sequence[str]
    """Expressions of the tensors that must not be one and the same."""
    ids: Sequence[str]
    """Names of the locals whose identity counts against the recompile limit."""
    differing: Sequence[str]
    """Expressions that are checked first: tensors, and what has failed before."""


class AmbientState(EventType, frozen=True):
    """The state outside of the frame that its guards hold on to."""

    kind = "guards.ambient"

    global_state: str
    """Grad mode, autocast, deterministic algorithms, default dtype, threads and the like, as
    GlobalStateGuard prints them (JSON)."""
    device: str | None
    """The default device (torch.set_default_device), or null."""
    torch_functions: Sequence[str]
    """Classes of the torch function modes, outermost first."""
    functorch: Sequence[Nest]
    """The functorch transforms that are open, outermost first."""
    dual_level: int
    """Level of forward-mode differentiation, -1 for none."""


class GuardSources(EventType, frozen=True):
    """The Sources of a compile's guards, each once (`torchreel.formats.sources.expand_source`)."""

    kind = "guards.sources"
    exact = True

    rows: Sequence[SourceDocument]
    """Class and fields; `{at: row}` is a Source in another row."""


class Guard(EventType, frozen=True):
    """A guard; its name is its type, its stack the user's line that needed it."""

    kind = "guards.guard"
    exact = True

    expression: str
    """The guarded expression, as Python; '' for ambient state."""
    source: int | None
    """Its Source, by its place in the event `guards.sources` of the compile."""
    types: Sequence[str]
    """The types that torch made of it: a type may fall back on others."""
    code: Sequence[str]
    """The checks, as Python; those that only the C++ tree knows (the hooks of modules, for one) are
    in its text."""
    class_: str | None = field(name="class")
    """Class of the guarded object."""
    portable: bool | None
    """True if torch could write it down for another process."""
    object: str | None
    """A description of the guarded object where its identity is what is checked."""
    arguments: Mapping[str, Nest] | None
    """Other arguments that the guard was made with."""


class AliasGuard(EventType, frozen=True):
    """AOTAutograd asks for a guard on the aliasing of inputs; the name is torch's class."""

    kind = "guards.alias"
    paged = False

    same: Sequence[SourceDocument]
    """Sources that must be one object, or whose memory may overlap."""
    apart: Sequence[SourceDocument]
    """Sources whose memory must not overlap with any other."""

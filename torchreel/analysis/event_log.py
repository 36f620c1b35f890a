"""The part of an event log that belongs to one compile, with the stacks of its events.

Lives here: which events there are, who saw them, and how they are addressed.  Not here: what they
mean (the modules beside this one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeVar, cast

from torchreel.errors import UsageError
from torchreel.events.event import EventType
from torchreel.events.shape_env import ShapeEnvCall, ShapeGuard
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Event, Graph, Recording, StackFrame, Stage

_Fields = TypeVar("_Fields", bound=EventType)
_Made = TypeVar("_Made")
_KEPT_LOGS = 16
"""Event logs that are kept for the next question about them: a later compile of a frame asks for
those of all its cache entries, of which torch makes eight."""
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/nn/", "/torch/_", "<frozen ")
"""Parts of the paths of files that are no user's."""


class SharedRows:
    """The rows of a recording that the event logs of its compiles share; each is read once."""

    def __init__(
        self, store: Store, recording: int, frames: Mapping[int, StackFrame] | None = None
    ) -> None:
        """Read from a store; `frames` are the recording's, where they were read already."""
        self._store, self._recording = store, recording
        if frames is not None:
            self.frames = frames
        self._log = lru_cache(maxsize=_KEPT_LOGS)(self._make_log)

    @cached_property
    def frames(self) -> Mapping[int, StackFrame]:
        """The stack frames."""
        return queries.stack_frames(self._store, self._recording)

    @cached_property
    def _named(self) -> Mapping[tuple[int, str], Sequence[Compile]]:
        """The compiles by what torch calls them, in order: several attempts have one name."""
        found: dict[tuple[int, str], list[Compile]] = {}
        for row in queries.compiles(self._store, self._recording):
            found.setdefault((row.generation, row.compile_id), []).append(row)
        return found

    def named_before(self, compile: Compile, name: str) -> CompileEventLog | None:
        """Return the last compile of a name that began before another one of its generation."""
        rows = self._named.get((compile.generation, name), ())
        found = [row for row in rows if row.id < compile.id]
        return self._log(found[-1]) if found else None

    def _make_log(self, compile: Compile) -> CompileEventLog:
        return CompileEventLog(self._store, compile, self)


class CompileEventLog:
    """The events of a compile; each kind is read once, when it is first needed."""

    def __init__(
        self,
        store: Store,
        compile: Compile,
        shared: SharedRows | None = None,
    ) -> None:
        """Read from a store; `shared` are rows of the recording that other logs need as well."""
        self.store, self.compile = store, compile
        self.shared = shared or SharedRows(store, compile.recording_id)
        self._made: dict[Callable[[CompileEventLog], object], object] = {}
        self._read: dict[str, list[Event]] = {}
        self._found: dict[tuple[str, ...], list[Event]] = {}
        self.traces: dict[str, Mapping[str, str]] = {}
        """Stack traces of nodes, by the digest of their graph (filled by `lowered`)."""

    def once(self, make: Callable[[CompileEventLog], _Made]) -> _Made:
        """Return the result of a function of this log, which is called once only."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(_Made, self._made[make])

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of events that there are."""
        return list(queries.event_counts(self.store, self.compile))

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of some kinds, in order; a kind that ends in '.' means all of a
        family.
        """
        if kinds not in self._found:
            self._found[kinds] = self._of(kinds)
        return self._found[kinds]

    def typed(self, wanted: type[_Fields]) -> list[tuple[Event, _Fields]]:
        """Return the events of a type, in order, each with its fields.

        Raises `DamagedStore` for a field that holds what it cannot.
        """
        found = ((event, event.fields) for event in self.of(wanted.kind))
        return [(event, fields) for event, fields in found if isinstance(fields, wanted)]

    def _of(self, kinds: tuple[str, ...]) -> list[Event]:
        wanted = [kind for kind in self.kinds if any(_is(kind, asked) for asked in kinds)]
        unread = [kind for kind in wanted if kind not in self._read]
        self._read |= {kind: [] for kind in unread}
        for event in queries.events(self.store, self.compile, unread) if unread else ():
            self._read[event.kind].append(event)
        found = [event for kind in wanted for event in self._read[kind]]
        return sorted(found, key=lambda event: event.seq)

    @cached_property
    def calls(self) -> dict[int, Event]:
        """The calls that changed a ShapeEnv, by seq: they are what changes are parts of."""
        return {event.seq: event for event in self.of(ShapeEnvCall.kind)}

    @cached_property
    def guard_of(self) -> dict[int | None, Event]:
        """The first guard that each call added to its ShapeEnv, by the seq of the call."""
        return {event.cause: event for event in reversed(self.of(ShapeGuard.kind))}

    @cached_property
    def stages(self) -> list[Stage]:
        """The stages that the compile entered."""
        return queries.stages(self.store, self.compile)

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graphs of the compile."""
        return queries.graphs(self.store, self.compile)

    def stack(self, event: Event) -> list[StackFrame]:
        """Return the user's stack at an event, outermost frame first."""
        return queries.unwound(self.shared.frames, event)

    def line(self, event: Event) -> StackFrame | None:
        """Return the user's line at an event: the innermost that is not in a library."""
        return users_line(self.stack(event))

    @property
    def address(self) -> str:
        """The address of the compile."""
        return f"{self.store.target}#{self.compile.place}"

    def place(self, seq: int) -> str:
        """Return the address of an event."""
        return f"{self.address}@{seq}"


def users_line(stack: Sequence[StackFrame]) -> StackFrame | None:
    """Return the innermost frame that is not in a library; the innermost, where all are."""
    own = [frame for frame in stack if not is_library(frame)]
    return own[-1] if own else stack[-1] if stack else None


def is_library(frame: StackFrame) -> bool:
    """Return True if a frame is in a library, and in no file of the user's."""
    return any(part in frame.file for part in _LIBRARIES)


def _is(kind: str, asked: str) -> bool:
    return kind.startswith(asked) if asked.endswith(".") else kind == asked


def texts(data: Json) -> list[str]:
    """Return a list of texts, of data that should be one."""
    ok = isinstance(data, Sequence) and not isinstance(data, str)
    return [str(item) for item in data] if ok else []  # type: ignore[union-attr]


def compile_of(store: Store, address: Address) -> Compile:
    """Return the compile that an address means; that of its event, where it names one."""
    if address.event is None:
        return queries.compile_at(store, address)
    event = queries.event_at(store, address)
    if event.compile_id is None:
        raise UsageError(f"{address} belongs to no compile: name the compile instead.")
    return queries.compile_by_id(store, event.compile_id)


def compiles_of(store: Store, address: Address) -> list[Compile]:
    """Return all that an address covers: a compile with its attempts, a recording, or every
    recording.
    """
    if address.compile is None and address.event is None:
        return [row for found in queries.covered(store, address) for row in _compiles(store, found)]
    row = compile_of(store, address)
    if address.attempt is not None or address.event is not None:
        return [row]
    return _attempts(queries.compiles(store, row.recording_id), row)


def _compiles(store: Store, recording: Recording) -> list[Compile]:
    return queries.compiles(store, recording.id)


def _attempts(rows: Sequence[Compile], last: Compile) -> list[Compile]:
    """Return the attempts that led to one."""
    name = (last.generation, last.compile_id)
    return [row for row in rows if (row.generation, row.compile_id) == name and row.id <= last.id]

"""Events as sentences: what each kind says of a symbol, a guard or a decision.

Lives here: the sentence for each kind, and `Step`, an event with its sentence and the user's line.
Not here: which events make a story (`symbols`, `guards`, `specialised`, ...).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchreel.analysis.differences import spelled_range
from torchreel.analysis.event_log import CompileEventLog, users_line
from torchreel.analysis.lowered import lowered
from torchreel.errors import DamagedStore
from torchreel.events.event import EventType
from torchreel.events.scalars import (
    DataDependentError,
    DeferredAssert,
    KnownAssert,
    ScalarItem,
    SizeLike,
    SymbolicScalar,
    UnbackedBindings,
    UnbackedRename,
    UnbackedSymbol,
)
from torchreel.events.shape_env import (
    BackedSymbol,
    Divisible,
    DuckSymbol,
    RangeUpdate,
    Replacement,
    ShapeEnvCall,
    ShapeGuard,
    ZeroOne,
)
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event, StackFrame


@dataclass(frozen=True)
class Step:
    """One event of a story: its address, its sentence, and the user's line that caused it."""

    address: str
    seq: int
    kind: str
    text: str
    line: StackFrame | None = None
    stack: tuple[StackFrame, ...] = ()
    code: str = ""
    """The source of the user's line, where the event log has it."""
    library: str = ""
    """The line of a library that it came to, where that is another."""
    torch: str = ""
    """The place in torch that evaluated the condition."""
    cause: Step | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the step as one object."""
        return {
            "address": self.address,
            "kind": self.kind,
            "text": self.text,
            "file": self.line.file if self.line else None,
            "line": self.line.line if self.line else None,
            "function": self.line.name if self.line else None,
            "code": self.code or None,
            "library": self.library or None,
            "torch": self.torch or None,
            "stack": [f"{frame.file}:{frame.line} in {frame.name}" for frame in self.stack],
            "cause": self.cause.to_json() if self.cause else None,
        }


@dataclass(frozen=True)
class Story:
    """The answer to one question: a headline, the steps that led to it, and facts beside it."""

    headline: str
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the story as one object."""
        return {
            "headline": self.headline,
            **self.facts,
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }


def step_of(log: CompileEventLog, event: Event, text: str = "") -> Step:
    """Return an event as a step, with the event that it is a part of as its cause."""
    cause = log.calls.get(event.cause or -1)
    stack, where = log.stack(event), location_of(log, event)
    node = lowered(log, event) if not stack else None
    line = users_line(node.stack if node else stack)
    own = line is not None and where.names(line)
    code, library = (where.code, "") if own else ("", where.library)
    if node is not None:
        code, library = node.code, f"Inductor, when it lowered {node.node}"
    return Step(
        log.place(event.seq), event.seq, event.kind, text or sentence_or_kind(event), line,
        node.stack if node else tuple(stack), code, library, where.torch,
        None if cause is None or cause.seq >= event.seq else step_of(log, cause),
    )  # fmt: skip


@dataclass(frozen=True)
class Location:
    """The origin of a guard as torch reports it: source line, its file, the caller inside torch."""

    code: str = ""
    place: str = ""
    torch: str = ""

    def names(self, line: StackFrame) -> bool:
        """Return True if this is the user's line."""
        path, _, rest = self.place.rpartition(":")
        return rest == f"{line.line} in {line.name}" and line.file.endswith(path.rsplit("/")[-1])

    @property
    def library(self) -> str:
        """The line of a library that the user's line called; '' if unknown."""
        return f"{self.place}: {self.code}" if self.place else ""


_LOCATION = re.compile(r"(?P<code>.*?)  # (?P<place>.*?)(?: \((?P<torch>[^()]*)\))?$", re.DOTALL)


_ALONE = re.compile(r"(?P<code>)(?P<place>)\((?P<torch>[^()]*)\)$")
"""The origin of a guard while nothing of the program is traced: a place in torch alone."""


def location_of(log: CompileEventLog, event: Event) -> Location:
    """Return the location of a guard, or of the guard that is part of the same call."""
    guard = log.guard_of.get(event.cause)
    known = _location(event) or (None if guard is None else _location(guard))
    match = _LOCATION.match(str(known or "")) or _ALONE.match(str(known or ""))
    return (
        Location(match["code"].strip(), match["place"], match["torch"] or "")
        if match
        else Location()
    )


def _location(event: Event) -> object:
    return event.fields.location if isinstance(event.fields, ShapeGuard) else None


def sentence_or_kind(event: Event) -> str:
    """Return the sentence for an event; its kind if there is none."""
    try:
        return _sentence(event.fields, event.name) or event.kind
    except (DamagedStore, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return f"{event.kind} (malformed)"


# -- sentences ------------------------------------------------------------------------------------

Arguments = Mapping[str, Any]


def _text(expr: Json) -> str:
    return spelling.size(expr)


def _bounds(data: Any) -> str:
    return "none" if data is None else spelled_range((data[0], data[1]))


def _sentence(fields: EventType | None, name: str) -> str:
    """Return the sentence for an event of this `name`; '' if there is none."""
    match fields:
        case BackedSymbol(symbol=symbol, hint=hint, range=known, sources=sources):
            where = ", ".join(source_name(source) for source in sources or ()) or "no source"
            value = _text(hint[0] if isinstance(hint, list) else hint)
            return f"{symbol} stands for {where}: {value} in this run, range {_bounds(known)}"
        case UnbackedSymbol(symbol=symbol, range=known):
            return f"{symbol} stands for a number that only a run knows, range {_bounds(known)}"
        case DuckSymbol(symbol=symbol, source=source):
            return f"{source_name(source)} shares {symbol}: it has the same value in this run"
        case RangeUpdate(symbol=symbol, old=old, new=new):
            return f"range of {symbol}: {_bounds(old)} -> {_bounds(new)}"
        case Replacement(symbol=symbol, expr=expr, reason=reason):
            what = "specialised: " if isinstance(expr, int) else ""
            return f"{what}{symbol} is {_text(expr)} from now on{f' ({reason})' if reason else ''}"
        case ShapeGuard(expr=expr):
            return f"guard: {_text(expr)}"
        case Divisible(expr=expr):
            return f"{_text(expr)} is known to be 0"
        case ZeroOne(source=source, value=size):
            return f"specialised: {source} is {size}, and sizes of 0 and 1 get no symbol"
        case ShapeEnvCall(arguments=given):
            tell = _CALLS.get(name)
            return tell(given) if tell is not None else f"ShapeEnv.{name}"
    return _sentence_of_scalar(fields, name)


def _sentence_of_scalar(fields: EventType | None, name: str) -> str:
    match fields:
        case DeferredAssert(expr=expr):
            return f"left to the run of the compiled code: {_text(expr)}"
        case KnownAssert(expr=expr, value=value):
            return f"{_text(expr)} is known to be {value}: not deferred"
        case UnbackedRename(symbol=symbol, to=old):
            return f"{symbol} of a new trace is {old} of the trace before"
        case SizeLike(symbol=symbol):
            return f"{symbol} counts as a size"
        case UnbackedBindings(bindings=bindings):
            return f"{', '.join(bindings)} was found in a result"
        case DataDependentError(expr=expr):
            return f"{_text(expr)} depends on data: {name}"
        case ScalarItem(symbol=symbol, source=source):
            return f"{symbol} is the value of {source_name(source)}"
        case SymbolicScalar(type=what, source=source, expr=None, value=value):
            return f"the {what} {source_name(source)} is the constant {value!r}"
        case SymbolicScalar(type=what, source=source, expr=expr):
            return f"the {what} {source_name(source)} is symbolic: {_text(expr)}"
    return ""


def _evaluated(given: Arguments) -> str:
    expr, hint = _text(given["orig_expr"]), given["hint"]
    if isinstance(given["orig_expr"], str) and given["orig_expr"].isidentifier():
        return f"the value of {expr} was asked for: {_text(hint)}"
    return f"{expr} was asked: {_text(hint)}" if hint is not None else f"{expr} was asked"


_CALLS: dict[str, Callable[[Arguments], str]] = {
    "_evaluate_expr": _evaluated,
    "guard_or_defer_runtime_assert": lambda given: f"{_text(given['orig_expr'])} was asserted",
    "_create_symbolic_sizes_strides_storage_offset": (
        lambda given: f"{source_name(given['source'])} became a fake tensor"
    ),
    "create_unspecified_symint_and_symbol": (
        lambda given: f"{source_name(given['source'])} became symbolic"
    ),
    "create_unspecified_symbol": lambda given: f"{source_name(given['source'])} became symbolic",
    "create_unbacked_symint": lambda given: "a result has a size or value that depends on data",
    "_constrain_range_for_size": lambda given: f"{_text(given['a'])} was said to be a size",
}

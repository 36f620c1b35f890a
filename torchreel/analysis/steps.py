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
from torchreel.analysis.event_log import CompileEventLog, data_of, users_line
from torchreel.analysis.lowered import lowered
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
    """One event of a story: where it is, what happened, and which line of the user's it was for."""

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
        """The step as one object."""
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
    """The answer to one question: a headline, what led to it, and facts beside it."""

    headline: str
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The story as one object."""
        return {
            "headline": self.headline,
            **self.facts,
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }


def step_of(log: CompileEventLog, event: Event, text: str = "") -> Step:
    """An event as a step, with the event that it is a part of as its cause."""
    cause = log.calls.get(event.cause or -1)
    stack, where = log.stack(event), location_of(log, event)
    node = lowered(log, event) if not stack else None
    line = users_line(node.stack if node else stack)
    own = line is not None and where.names(line)
    code, library = (where.code, "") if own else ("", where.library)
    if node is not None:
        code, library = node.code, f"Inductor, when it lowered {node.node}"
    return Step(
        log.place(event.seq), event.seq, event.kind, text or told(event), line,
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
        """Return whether this is the user's line."""
        path, _, rest = self.place.rpartition(":")
        return rest == f"{line.line} in {line.name}" and line.file.endswith(path.rsplit("/")[-1])

    @property
    def library(self) -> str:
        """A line of a library that the user's line came to."""
        return f"{self.place}: {self.code}" if self.place else ""


_LOCATION = re.compile(r"(?P<code>.*?)  # (?P<place>.*?)(?: \((?P<torch>[^()]*)\))?$", re.DOTALL)


_ALONE = re.compile(r"(?P<code>)(?P<place>)\((?P<torch>[^()]*)\)$")
"""The origin of a guard while nothing of the program is traced: a place in torch alone."""


def location_of(log: CompileEventLog, event: Event) -> Location:
    """The location of a guard, or of the guard that is part of the same call."""
    known = data_of(event).get("location")
    if known is None and event.cause in log.guard_of:
        known = data_of(log.guard_of[event.cause]).get("location")
    match = _LOCATION.match(str(known or "")) or _ALONE.match(str(known or ""))
    return (
        Location(match["code"].strip(), match["place"], match["torch"] or "")
        if match
        else Location()
    )


def told(event: Event) -> str:
    """Return what an event says, as a sentence; its kind where there is none for it."""
    tell = _SENTENCES.get(event.kind)
    try:
        return tell(data_of(event), event) if tell is not None else event.kind
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return f"{event.kind} (malformed)"


# -- sentences ------------------------------------------------------------------------------------

Data = Mapping[str, Any]


def _text(expr: Json) -> str:
    return spelling.size(expr)


def _bounds(data: Any) -> str:
    return "none" if data is None else spelled_range((data[0], data[1]))


def _symbol(data: Data, event: Event) -> str:
    sources = ", ".join(source_name(source) for source in data["sources"] or ())
    hint = data["hint"][0] if isinstance(data["hint"], list) else data["hint"]
    value = f"{_text(hint)} in this run, range {_bounds(data['range'])}"
    return f"{data['symbol']} stands for {sources or 'no source'}: {value}"


def _unbacked(data: Data, event: Event) -> str:
    what = "a number that only a run knows"
    return f"{data['symbol']} stands for {what}, range {_bounds(data['range'])}"


def _duck(data: Data, event: Event) -> str:
    return (
        f"{source_name(data['source'])} shares {data['symbol']}: it has the same value in this run"
    )


def _range(data: Data, event: Event) -> str:
    return f"range of {data['symbol']}: {_bounds(data['old'])} -> {_bounds(data['new'])}"


def _replacement(data: Data, event: Event) -> str:
    what = "specialised: " if isinstance(data["expr"], int) else ""
    why = f" ({data['reason']})" if data["reason"] else ""
    return f"{what}{data['symbol']} is {_text(data['expr'])} from now on{why}"


def _guard(data: Data, event: Event) -> str:
    return f"guard: {_text(data['expr'])}"


def _divisible(data: Data, event: Event) -> str:
    return f"{_text(data['expr'])} is known to be 0"


def _defer(data: Data, event: Event) -> str:
    return f"left to the run of the compiled code: {_text(data['expr'])}"


def _known(data: Data, event: Event) -> str:
    return f"{_text(data['expr'])} is known to be {data['value']}: not deferred"


def _rename(data: Data, event: Event) -> str:
    return f"{data['symbol']} of a new trace is {data['to']} of the trace before"


def _size_like(data: Data, event: Event) -> str:
    return f"{data['symbol']} counts as a size"


def _zero_one(data: Data, event: Event) -> str:
    return f"specialised: {data['source']} is {data['value']}, and sizes of 0 and 1 get no symbol"


def _scalar(data: Data, event: Event) -> str:
    what, source = data["type"], source_name(data["source"])
    if data["expr"] is None:
        return f"the {what} {source} is the constant {data['value']!r}"
    return f"the {what} {source} is symbolic: {_text(data['expr'])}"


def _item(data: Data, event: Event) -> str:
    return f"{data['symbol']} is the value of {source_name(data['source'])}"


def _data_dependent(data: Data, event: Event) -> str:
    return f"{_text(data['expr'])} depends on data: {event.name}"


def _bindings(data: Data, event: Event) -> str:
    return f"{', '.join(data['bindings'])} was found in a result"


def _call(data: Data, event: Event) -> str:
    given = data["arguments"]
    tell = _CALLS.get(event.name)
    return tell(given) if tell is not None else f"ShapeEnv.{event.name}"


def _evaluated(given: Data) -> str:
    expr, hint = _text(given["orig_expr"]), given["hint"]
    if isinstance(given["orig_expr"], str) and given["orig_expr"].isidentifier():
        return f"the value of {expr} was asked for: {_text(hint)}"
    return f"{expr} was asked: {_text(hint)}" if hint is not None else f"{expr} was asked"


_CALLS: dict[str, Callable[[Data], str]] = {
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

_SENTENCES: dict[str, Callable[[Data, Event], str]] = {
    BackedSymbol.kind: _symbol,
    DuckSymbol.kind: _duck,
    RangeUpdate.kind: _range,
    Replacement.kind: _replacement,
    ShapeGuard.kind: _guard,
    Divisible.kind: _divisible,
    ZeroOne.kind: _zero_one,
    ShapeEnvCall.kind: _call,
    UnbackedSymbol.kind: _unbacked,
    UnbackedRename.kind: _rename,
    SizeLike.kind: _size_like,
    UnbackedBindings.kind: _bindings,
    DataDependentError.kind: _data_dependent,
    DeferredAssert.kind: _defer,
    KnownAssert.kind: _known,
    ScalarItem.kind: _item,
    SymbolicScalar.kind: _scalar,
}

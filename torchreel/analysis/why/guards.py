"""`why GUARD`: which line needed a guard, and what made it what it is.

Lives here: finding guards by a piece of their code or by their event, and what led to each.  Not
here: whether an input would pass them (`guard_check`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from torchreel.analysis.event_log import CompileEventLog, texts
from torchreel.analysis.shapes import SymbolTable, shape_events, symbol_table
from torchreel.analysis.why.specialised import why_specialised
from torchreel.analysis.why.steps import Step, Story, step_of
from torchreel.analysis.why.symbols import mentions
from torchreel.errors import TorchreelError, UsageError
from torchreel.events.guards import Guard
from torchreel.events.scalars import DeferredAssert
from torchreel.events.shape_env import (
    BackedSymbol,
    DuckSymbol,
    ProducedGuards,
    ShapeEnvCreate,
    ShapeGuard,
)
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event

_Part = TypeVar("_Part")
_SHAPE_GUARDS = (ShapeGuard.kind, DeferredAssert.kind)


class Background:
    """The context in which the guards of a compile are explained; each part is computed once."""

    def __init__(self, log: CompileEventLog) -> None:
        self.event_log = log
        self.holes: list[str] = []
        """The parts that can't be computed, and why."""
        self._has_shapes = bool(log.of(ShapeEnvCreate.kind))

    @cached_property
    def table(self) -> SymbolTable:
        """The symbols at the end; none where the compile has no ShapeEnv."""
        if not self._has_shapes:
            return SymbolTable(0)
        return self._part(lambda: symbol_table(shape_events(self.event_log)), SymbolTable(0))

    @cached_property
    def names(self) -> dict[str, str]:
        """The source of each symbol."""
        return self.table.sources()

    @cached_property
    def specialised(self) -> list[Story]:
        """Return the stories of the sizes that were dynamic and became static."""
        return self._part(lambda: why_specialised(self.event_log), [])

    def _part(self, compute: Callable[[], _Part], otherwise: _Part) -> _Part:
        try:
            return compute()
        except TorchreelError as error:
            hole = f"the symbols of {self.event_log.address} are not known: {error}"
            if hole not in self.holes:
                self.holes.append(hole)
            return otherwise

    def with_holes(self, story: Story) -> Story:
        """Return a story with a note on each part that it lacks."""
        return replace(story, notes=(*story.notes, *self.holes))


def why_guard(log: CompileEventLog, text: str) -> list[Story]:
    """Return the story of each guard that holds a piece of code, or of type `text`.

    Raises `UsageError` when there is none.
    """
    known = log.once(Background)
    found = [
        guard_story(known, guard, fields, [part for part in fields.code if holds(part, text)])
        for guard, fields in log.typed(Guard)
        if guard.name == text or any(holds(part, text) for part in _spellings(fields))
    ]
    found += [
        _shape_story(known, event)
        for event in log.of(*_SHAPE_GUARDS)
        if any(holds(spelt, text) for spelt in _shape_spellings(event, known.names))
    ]
    if not found:
        raise UsageError(
            f"{log.address} has no guard with {text!r:.80} in it: list its guards with 'torchreel "
            f"guards {log.address}'.{''.join(f' But {hole}' for hole in known.holes)}"
        )
    return [known.with_holes(story) for story in found]


def _spellings(guard: Guard) -> list[str]:
    return [guard.expression, *guard.code]


_MARK = re.compile(r"hasattr\(.*, '_dynamo_\w+'\) == False", re.DOTALL)
_KEYS = re.compile(r"DispatchKeySet\((\w+)[^()]*\)")
_ID = re.compile(r", \d{6,}\)")


def is_mark(part: str) -> bool:
    """Return True for the check that a tensor has no mark, which every tensor gets."""
    return _MARK.fullmatch(part) is not None


def shown(part: str) -> str:
    """Return a check for a person: without ids, and with the first of the dispatch keys alone."""
    return _ID.sub(")", _KEYS.sub(r"\1", part))


def holds(code: str, text: str) -> bool:
    """Return True if code contains a piece; spaces and kinds of quotes don't matter."""
    return _plain(text) in _plain(code)


def _plain(code: str) -> str:
    return re.sub(r"\s+", "", code).replace('"', "'")


def _shape_spellings(event: Event, names: Mapping[str, str]) -> tuple[str, str]:
    """Return an expression over symbols, and over where they come from."""
    text = expression_of(event)
    return text, in_sources(text, names)


def expression_of(event: Event) -> str:
    """Return the condition of a guard of a ShapeEnv, or of a deferred assertion."""
    match event.fields:
        case ShapeGuard(expr=expr) | DeferredAssert(expr=expr):
            return spelling.size(expr)
    return ""


def in_sources(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with the source in place of each symbol."""
    return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), text)


# -- one guard ------------------------------------------------------------------------------------


def guard_story(known: Background, event: Event, guard: Guard, parts: Sequence[str] = ()) -> Story:
    """Return the story of a guard; of some of its checks, if only those matter.

    `parts` may also be messages of a failing tensor guard ('size mismatch at index 0').
    """
    wanted = [part for part in parts if part in guard.code] or list(guard.code)
    text = "; ".join(shown(part) for part in wanted if not is_mark(part))
    step = step_of(known.event_log, event, f"guard: {text or event.name}")
    led: list[Step] = []
    if event.name == "TENSOR_MATCH":
        led = _made_static(known, guard.expression, parts)
    elif event.name == "SHAPE_ENV":
        led = _shape_steps(known, wanted)
    facts: dict[str, Json] = {
        "guard": event.name, "expression": guard.expression, "code": wanted,
    }  # fmt: skip
    on = f" on {guard.expression}" if guard.expression else ""
    notes = _explained(known.event_log, wanted) if event.name == "SHAPE_ENV" else ()
    return Story(f"{event.name}{on} at {step.address}", (*led, step), facts, tuple(notes))


_AT_INDEX = re.compile(r"(?P<what>size|stride) mismatch at index (?P<index>\d+)")


def _made_static(known: Background, expression: str, parts: Iterable[str]) -> list[Step]:
    """Return the steps that made dynamic sizes of a tensor static, or those a failure names."""
    failed = [match for part in parts if (match := _AT_INDEX.search(part))]
    wanted = [f"{expression}.{match['what']}()[{match['index']}]" for match in failed]
    return [
        step
        for story in known.specialised
        if any(_is_size(source, expression, wanted) for source in texts(story.facts["sources"]))
        for step in story.steps
    ]


def _is_size(source: str, expression: str, wanted: Sequence[str]) -> bool:
    return source in wanted if wanted else source.startswith(f"{expression}.")


def _shape_steps(known: Background, parts: Sequence[str]) -> list[Step]:
    """Return the events by which the ShapeEnv came to demand these checks."""
    log, table = known.event_log, known.table
    own = [name for name, row in table.symbols.items() if _read_in(row.sources, parts)]
    bare = {_bare(part) for part in parts}
    exact = [e for e in log.of(ShapeGuard.kind) if _same(e, known.names, bare)]
    found = exact or [
        event
        for event in log.of(BackedSymbol.kind, DuckSymbol.kind, ShapeGuard.kind)
        if _about(event, own)
    ]
    return [step_of(log, event) for event in found]


def _read_in(sources: Iterable[str], parts: Iterable[str]) -> bool:
    return any(source in part for source in sources for part in parts)


def _same(event: Event, names: Mapping[str, str], bare: Collection[str]) -> bool:
    text = _bare(_shape_spellings(event, names)[1])
    return text in bare or _mirrored(text) in bare


def _bare(code: str) -> str:
    return re.sub(r"[\s()]", "", code)


def _mirrored(text: str) -> str:
    left, sign, right = text.partition("==")
    return f"{right}{sign}{left}"


def _about(event: Event, symbols: Collection[str]) -> bool:
    match event.fields:
        case ShapeGuard(expr=expr):
            return any(mentions(expr, symbol) for symbol in symbols)
        case BackedSymbol(symbol=made) | DuckSymbol(symbol=made):
            return made in symbols
    return False


def _explained(log: CompileEventLog, parts: Iterable[str]) -> list[str]:
    """Return torch's verbose texts of checks of a ShapeEnv, with the comment after '#'."""
    lists = [fields.guards for _, fields in log.typed(ProducedGuards)]
    verbose = [text for found in lists if found for text in texts(found[-1])]
    wanted = [_plain(part) for part in parts]
    return [text for text in verbose if _plain(text.partition("  # ")[0]) in wanted]


def _shape_story(known: Background, event: Event) -> Story:
    step = step_of(known.event_log, event)
    over_symbols, over_sources = _shape_spellings(event, known.names)
    facts: dict[str, Json] = {
        "guard": "ShapeEnv", "expression": over_symbols, "code": [over_sources],
    }  # fmt: skip
    return Story(f"{over_sources} in the ShapeEnv at {step.address}", (step,), facts)


def why_event(log: CompileEventLog, event: Event) -> list[Story]:
    """Return the story of one event: a guard's, or the event with its cause."""
    known = log.once(Background)
    if isinstance(event.fields, Guard):
        return [known.with_holes(guard_story(known, event, event.fields))]
    if event.kind in _SHAPE_GUARDS:
        return [known.with_holes(_shape_story(known, event))]
    step = step_of(log, event)
    return [Story(f"{event.kind} {event.name}".rstrip() + f" at {step.address}", (step,))]

"""Stories of `why`, guards and symbols of a compile, as parts of the document.

Lives here: the form that they have there: addresses without the store, which a page has once.  Not
here: what happened (`torchreel.analysis`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchreel.analysis.differences import cell
from torchreel.analysis.event_log import CompileEventLog, texts
from torchreel.analysis.shapes import Symbol, SymbolTable, shape_events, symbol_table, walk
from torchreel.analysis.why.guards import expression_of, in_sources, is_mark, shown
from torchreel.analysis.why.steps import Step, Story, step_of
from torchreel.analysis.why.symbols import why_symbol
from torchreel.events.guards import Guard
from torchreel.events.scalars import DeferredAssert
from torchreel.events.shape_env import ShapeEnvCreate, ShapeGuard
from torchreel.report.document import (
    GuardRow,
    SourceLine,
    SymbolMoment,
    SymbolRow,
    SymbolState,
    WhyStep,
    WhyStory,
)
from torchreel.store.records import StackFrame

MOST_GUARDS = 5_000
MOST_SYMBOLS = 300
MOST_MOMENTS = 1_000
_MOST_STEPS = 60


def line_of(frame: StackFrame, code: str = "") -> SourceLine:
    """Return a frame as a line of a program."""
    return SourceLine(frame.file, frame.line, frame.name, code)


def stories_of(log: CompileEventLog, stories: Iterable[Story]) -> list[WhyStory]:
    """Return stories, as the document has them."""
    return [
        WhyStory(
            _here(log, story.headline),
            [_step(log, step) for step in story.steps[:_MOST_STEPS]],
            [_here(log, note) for note in story.notes],
            texts(story.facts.get("guards")),
        )
        for story in stories
    ]


def _here(log: CompileEventLog, text: str) -> str:
    """Return a text without the name of the store before '#'."""
    return text.replace(f"{log.store.target}#", "#")


def _step(log: CompileEventLog, step: Step) -> WhyStep:
    line = line_of(step.line, step.code) if step.line else None
    return WhyStep(_here(log, step.address), _here(log, step.text), line, step.torch)


def guards_of(log: CompileEventLog) -> Iterator[GuardRow]:
    """Yield the guards of a compile, then those over its symbols."""
    for event, guard in log.typed(Guard)[:MOST_GUARDS]:
        step = _step(log, step_of(log, event))
        code = [shown(part) for part in guard.code if not is_mark(part)]
        yield GuardRow(event.name, code, step.event, guard.expression, step.line, step.torch)
    names = _table(log).sources()
    for event in log.of(ShapeGuard.kind, DeferredAssert.kind)[:MOST_GUARDS]:
        step = _step(log, step_of(log, event))
        text = expression_of(event)
        code = [in_sources(text, names)]
        yield GuardRow("ShapeEnv", code, step.event, text, step.line, step.torch)


def _table(log: CompileEventLog) -> SymbolTable:
    if not log.of(ShapeEnvCreate.kind):
        return SymbolTable(0)
    return symbol_table(shape_events(log))


def symbols_of(log: CompileEventLog) -> Iterator[SymbolRow]:
    """Yield the symbols of a compile, in the order of their creation, with what made each what it
    is.
    """
    for name in list(_table(log).symbols)[:MOST_SYMBOLS]:
        story = why_symbol(log, name)
        steps = [_step(log, step) for step in story.steps[:_MOST_STEPS]]
        now = story.headline.partition(f"{log.address}: ")[2] or story.headline
        yield SymbolRow(name, now, texts(story.facts.get("sources")), steps)


def moments_of(log: CompileEventLog) -> Iterator[SymbolMoment]:
    """Yield the events that changed the table of symbols, with the symbols that they changed."""
    if not log.of(ShapeEnvCreate.kind):
        return
    known: dict[str, Symbol] = {}
    facts, number = (0, 0), 0
    for event, table in walk(shape_events(log)):
        changed = [row for name, row in table.symbols.items() if known.get(name) is not row]
        now = len(table.guards), len(table.asserts)
        if changed or now != facts:
            known, facts, number = dict(table.symbols), now, number + 1
            step = _step(log, step_of(log, event))
            yield SymbolMoment(step.event, step.text, list(map(_state, changed)), *now)
        if number >= MOST_MOMENTS:
            return


def _state(row: Symbol) -> SymbolState:
    cells = (cell(row, column) for column in ("hint", "range", "replacement", "sources"))
    return SymbolState(row.name, *cells)

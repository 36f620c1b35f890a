"""The causes of recompiles and graph breaks: what has one reason is one cause, however often.

Lives here: which events have one cause, what torch advises about it, and how often each came up.
Not here: the story of a single event (`frames`).  Called by `torchreel why`, `ls`, `record` and
the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.analysis.event_log import texts, users_line
from torchreel.analysis.why.frames import shortened
from torchreel.analysis.why.steps import Story
from torchreel.events.frames import CacheMiss, GraphBreak
from torchreel.store import queries
from torchreel.store.addressing import without_event
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Event, Recording, StackFrame

MISS, BREAK = CacheMiss.kind, GraphBreak.kind
# A number that stands alone: not in a name, not the index of an item or a dimension.
_NUMBER = re.compile(
    r"(?<![\w)\]'\"]\[)(?<![\w)\]'\"]\[-)(?<!\bindex )(?<![\w.'\"])-?\d[\d.]*(?:e[-+]?\d+)?(?!\w)"
)
_TEXT = re.compile(r"(?<=== )(?:'[^']*'|\"[^\"]*\")")
_HINT = re.compile(r"\(HINT: (?P<text>[^\n]*)\)[ \t]*$", re.MULTILINE)
_SIZE = re.compile(r"tensor 'L\['(?P<name>\w+)'\]' size mismatch at index (?P<index>\d+)")


@dataclass(frozen=True)
class Cause:
    """A reason for recompiles or graph breaks, and the stories that have it, oldest first."""

    stories: tuple[Story, ...]
    advice: tuple[str, ...] = ()
    """Advice of torch, a sentence each."""

    @property
    def newest(self) -> Story:
        """The story of the last compile, of the newest entry that it could not reuse."""
        last = self.compiles[-1]
        return next(story for story in self.stories if compile_of(story) == last)

    @property
    def compiles(self) -> tuple[str, ...]:
        """The addresses of the compiles, each once, in order."""
        return tuple(dict.fromkeys(compile_of(story) for story in self.stories))

    @property
    def line(self) -> StackFrame | None:
        """The user's line of the last event."""
        return self.newest.steps[-1].line or self.newest.steps[0].line


RAISED = "raised"


def is_break(event: Event) -> bool:
    """Return True for a graph break of the program; one that raised, as of a full graph, is a
    failure instead.
    """
    return isinstance(event.fields, GraphBreak) and event.fields.outcome != RAISED


def compile_of(story: Story) -> str:
    """Return the address of the compile that a story is of."""
    return without_event(str(story.facts.get("compile") or story.facts.get("event")))


def grouped(stories: Iterable[Story]) -> list[Cause]:
    """Return the causes of recompiles or of graph breaks; the one that came up last is the last."""
    groups: dict[tuple[Json, ...], list[Story]] = {}
    for story in stories:
        key = _key_of_story(story)
        groups[key] = [*groups.pop(key, []), story]
    return [_cause(tuple(same)) for same in groups.values()]


def _cause(same: tuple[Story, ...]) -> Cause:
    return Cause(same, tuple(_advice(Cause(same).newest)))


def _key_of_story(story: Story) -> tuple[Json, ...]:
    facts = story.facts
    if "guards" in facts:
        reason = str(facts.get("reason") or "")
        return _of_miss(reason, texts(facts["guards"]), facts.get("frame"))
    line = story.steps[0].line
    place = f"{line.file}:{line.line}" if line else None
    return (*_of_break(str(facts.get("type")), ""), place, facts.get("outcome") == RAISED)


def _of_miss(reason: str, guards: Sequence[str], frame: Json) -> tuple[Json, ...]:
    """Return the key of a cache miss: the same guard of one function, without the values in it."""
    said = " ".join(guards) or shortened(reason)
    return "recompile", frame, _NUMBER.sub("N", _TEXT.sub("TEXT", said))


def _of_break(what: str, reason: str) -> tuple[Json, ...]:
    return "graph break", what or shortened(reason)


def key(event: Event, frame: str, line: StackFrame | None) -> tuple[Json, ...]:
    """Return a key that is equal for two events of one cause; () for an event that has none.

    `line` is the user's at the event.
    """
    match event.fields:
        case CacheMiss(reason=reason, guards=guards):
            return _of_miss(reason, guards, frame)
        case GraphBreak(type=what, reason=reason) if is_break(event):
            return (*_of_break(what or "", reason), f"{line.file}:{line.line}" if line else None)
    return ()


def _advice(story: Story) -> Iterator[str]:
    """Yield torch's own hints, and the way to make a size dynamic from the first call."""
    yield from texts(story.facts.get("hints"))
    hint = _HINT.search(str(story.facts.get("reason") or ""))
    if hint:
        yield hint["text"]
    for guard in texts(story.facts.get("guards")):
        size = _SIZE.match(guard)
        if size:
            yield (
                "to make a size dynamic from the first call: torch._dynamo.mark_dynamic("
                f"{size['name']}, {size['index']}), or torch.compile(..., dynamic=True)"
            )


@dataclass(frozen=True)
class Counts:
    """Numbers of recompiles and graph breaks, and of the causes of each."""

    recompiles: int = 0
    causes: int = 0
    graph_breaks: int = 0
    places: int = 0
    """The causes of graph breaks; 0 where nobody counted them."""

    def __str__(self) -> str:
        """Return a few words; none where there was neither."""
        words = []
        if self.recompiles:
            words.append(
                f"{_count(self.recompiles, 'recompile')} for {_count(self.causes, 'cause')}"
            )
        if self.graph_breaks:
            places = f" for {_count(self.places, 'cause')}" if self.places else ""
            words.append(f"{_count(self.graph_breaks, 'graph break')}{places}")
        return ", ".join(words)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The commands that tell the reasons, for those kinds that occurred."""
        found = {"why-recompile": self.recompiles, "why-graph-break": self.graph_breaks}
        return tuple(verb for verb, number in found.items() if number)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.recompiles + other.recompiles, self.causes + other.causes,
            self.graph_breaks + other.graph_breaks, self.places + other.places,
        )  # fmt: skip


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts(store: Store, recording: Recording) -> Counts:
    """Count the recompiles and graph breaks of a recording."""
    compiles = queries.compiles(store, recording.id)
    events = queries.events_by_compile(store, compiles, (MISS, BREAK))
    found = _counts(compiles, events)
    if not found.graph_breaks:
        return found
    frames = queries.stack_frames(store, recording.id)
    places = {
        key(event, "", users_line(queries.unwound(frames, event)))
        for row in compiles
        for event in events.get(row.id, ())
        if is_break(event)
    }
    return replace(found, places=len(places))


def counts_by_recording(
    store: Store, compiles: Mapping[int, Sequence[Compile]]
) -> dict[int, Counts]:
    """Count the recompiles and graph breaks of some recordings, by their compiles.

    The causes of graph breaks are not counted: they would take the stacks of each recording.
    """
    every = [row for rows in compiles.values() for row in rows]
    events = queries.events_by_compile(store, every, (MISS, BREAK))
    return {number: _counts(rows, events) for number, rows in compiles.items()}


def _counts(compiles: Sequence[Compile], events: Mapping[int, Sequence[Event]]) -> Counts:
    found = [(event, row.frame_name or "") for row in compiles for event in events.get(row.id, ())]
    misses = [each for each in found if each[0].kind == MISS]
    keys = {key(event, name, None) for event, name in misses}
    breaks = sum(is_break(event) for event, _ in found)
    return Counts(len({event.compile_id for event, _ in misses}), len(keys), breaks)

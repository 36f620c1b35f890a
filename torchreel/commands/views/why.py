"""`torchreel why`: stories of symbols, guards, recompiles, specialisations and graph breaks.

Lives here: a story as lines and as JSON.  Not here: what happened (`torchreel.analysis`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

from torchreel.analysis.event_log import texts
from torchreel.analysis.why import grouped_causes
from torchreel.analysis.why import questions as history
from torchreel.analysis.why.frames import shortened
from torchreel.analysis.why.steps import Step, Story
from torchreel.commands.rendering import listing, lost, streams
from torchreel.commands.rendering.text import count
from torchreel.errors import UsageError
from torchreel.escaping.shell import command
from torchreel.store import Store
from torchreel.store.addressing import Address, parse, without_event
from torchreel.store.passwords import hidden
from torchreel.store.records import StackFrame

_NOTHING = {
    history.RECOMPILE: "nothing was compiled again",
    history.SPECIALISED: "no size was made static",
    history.GRAPH_BREAK: "no graph break",
}


def question(words: Sequence[str]) -> tuple[Address, str]:
    """Parse `[ADDRESS] WHAT`, or the address of an event alone, into an address and a question."""
    match list(words):
        case [word] if "#" in word and history.topic_of(word) is None:
            return parse(word), ""
        case [what]:
            store = what.rpartition("@")[0]
            if "#" not in what and store and Path(store).is_file() and not Path(what).exists():
                example = command("torchreel", "why", f"{store}#1@12")
                raise UsageError(f"An event has its recording before it, as in '{example}'.")
            # no symbol has a dot in its name
            if "://" in what or ("." in what and Path(what).is_file()):
                shown = hidden(what)
                example = command("torchreel", "why", shown, "recompile")
                raise UsageError(f"Say what is asked about {shown}, as in '{example}'.")
            return parse(), what
        case [address, what]:
            return parse(address), what
    raise UsageError(
        "Write what is asked about after the address, as in 'torchreel why run.db#1/0/0 s77'; a "
        "guard's code in quotes."
    )


def why(store: Store, address: Address, what: str, json: bool) -> None:
    """Print the stories that answer a question."""
    answer = history.why(store, address, what)
    stories, topic = answer.stories, history.topic_of(what)
    if json:
        listing.write_json([story.to_json() for story in stories])
    elif not stories:
        streams.result(f"{address}: {_NOTHING.get(topic or '', 'nothing')}")
    elif topic in _EVENTS and address.compile is None and len(stories) > 1:
        _print_causes(topic or "", stories)
    else:
        _print_stories(stories, topic)
    if answer.silent:
        only = "only a summary was kept of"
        streams.say(f"{only} {', '.join(answer.silent)}, so nothing is said of that")
    lost.say_lost(store, address)
    _print_next(address, topic, stories)


_EVENTS = {history.RECOMPILE: "recompile", history.GRAPH_BREAK: "graph break"}


def _print_causes(topic: str, stories: Sequence[Story]) -> None:
    """Print a line for each cause in a whole recording, and what torch advises about it."""
    found = grouped_causes.grouped(stories)
    raised = [cause for cause in found if _has_raised(cause.newest)]
    counted = [story for story in stories if not _has_raised(story)]
    events: Collection[object] = counted
    if topic == _RECOMPILE:
        events = {grouped_causes.compile_of(story) for story in counted}
    also = f", and {len(stories) - len(counted)} that raised" if raised else ""
    streams.result(
        f"{count(len(events), _EVENTS[topic])} for {count(len(found) - len(raised), 'cause')}{also}"
        ", newest last:"
    )
    numbers = [len(cause.compiles if topic == _RECOMPILE else cause.stories) for cause in found]
    if topic == _RECOMPILE and sum(numbers) > len(events):
        streams.result("a recompile counts under each cause for which an entry was not reused")
    for number, cause in zip(numbers, found, strict=True):
        streams.result()
        streams.result(f"{number} x {_what(cause)}", style="bold")
        first, last = cause.compiles[0], cause.compiles[-1]
        where = first if first == last else f"{first} to {last}"
        streams.result(f"  {where}{_at(cause.line)}")
        for advice in cause.advice:
            streams.result(f"  advice: {advice}")


def _has_raised(story: Story) -> bool:
    return story.facts.get("outcome") == grouped_causes.RAISED


_RECOMPILE = history.RECOMPILE


def _what(cause: grouped_causes.Cause) -> str:
    """Return the function and the guard that failed, or what Dynamo could not trace."""
    facts = cause.newest.facts
    if "guards" not in facts:
        raised = ", which raised: a full graph was asked for" if _has_raised(cause.newest) else ""
        return f"{facts['type']}{raised}"
    many = len(cause.stories) > 1 and len({str(s.facts["guards"]) for s in cause.stories}) > 1
    also = " (and with other numbers)" if many else ""
    what = "; ".join(texts(facts["guards"])) or shortened(str(facts["reason"]))
    limit = f"; the last {facts['outcome']}" if facts["outcome"] != "was compiled" else ""
    return f"{facts['frame']}: {what}{also}{limit}"


def _at(line: StackFrame | None) -> str:
    return f", at {line.file}:{line.line} in {line.name}" if line else ""


def _print_stories(stories: Sequence[Story], topic: str | None) -> None:
    """Print each story; of a compile, what failed in several entries for one cause once."""
    shown = stories
    if topic == _RECOMPILE:
        # The newest entry is first.
        shown = [cause.stories[0] for cause in grouped_causes.grouped(stories)]
    for number, story in enumerate(shown):
        if number:
            streams.result()
        _print_story(story, whole_stacks=topic == history.GRAPH_BREAK)
    if len(shown) < len(stories):
        older = [str(story.facts["entry"]) for story in stories if story not in shown]
        streams.result()
        streams.result(
            f"for the same causes, entries that could not be reused either: {', '.join(older)}"
        )


def _print_story(story: Story, whole_stacks: bool) -> None:
    streams.result(story.headline, style="bold")
    for _, steps in groupby(story.steps, key=_group):
        _print_steps(list(steps), whole_stacks)
    for note in story.notes:
        streams.result(f"  {note}")


def _group(step: Step) -> tuple[object, ...]:
    """Return a key that is equal for steps that one call of a ShapeEnv made for one line."""
    return step.line, step.code, step.library, step.cause.seq if step.cause else None


def _print_steps(steps: Sequence[Step], whole_stacks: bool) -> None:
    first = steps[0]
    streams.result(f"  {_place(first)}")
    if whole_stacks:
        for frame in reversed(first.stack[:-1]):
            streams.result(f"    called by {frame.file}:{frame.line} in {frame.name}")
    if first.library:
        streams.result(f"    by way of {first.library}")
    for step in ([first.cause] if first.cause else []) + list(steps):
        asked = f", by torch/{first.torch}" if first.torch and step is first.cause else ""
        streams.result(f"    {step.address}  {step.text}{asked}")


def _place(step: Step) -> str:
    if step.line is None:
        return "for no line of the program"
    code = f": {step.code}" if step.code else ""
    return f"{step.line.file}:{step.line.line} in {step.line.name}{code}"


def _print_next(address: Address, topic: str | None, stories: Sequence[Story]) -> None:
    steps = [step for story in stories for step in story.steps]
    if not steps:
        streams.next_command("torchreel", "show", address)
    elif topic in _EVENTS and address.compile is None and len(stories) > 1:
        streams.next_command("torchreel", "why", grouped_causes.compile_of(stories[-1]), topic)
    elif topic == history.RECOMPILE:
        streams.next_command("torchreel", "guards", stories[-1].facts["entry"])
    elif topic == history.GRAPH_BREAK:
        streams.next_command("torchreel", "show", without_event(steps[-1].address))
    else:
        streams.next_command("torchreel", "shapes", steps[-1].address)

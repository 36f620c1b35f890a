"""`torchreel why`: stories of symbols, guards, recompiles, specialisations and graph breaks.

Lives here: a story as lines and as JSON.  Not here: what happened (`torchreel.analysis`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torchreel.analysis import why as history
from torchreel.analysis.steps import Step, Story
from torchreel.commands.rendering import listing, lost, streams
from torchreel.errors import UsageError
from torchreel.store import Store
from torchreel.store.addressing import Address, parse

_NOTHING = {
    history.RECOMPILE: "nothing was compiled again",
    history.SPECIALISED: "no size was made static",
    history.GRAPH_BREAK: "no graph break",
}


def question(words: Sequence[str]) -> tuple[Address, str]:
    """The address and what is asked, of `[ADDRESS] WHAT` or of the address of an event alone."""
    match list(words):
        case [word] if "#" in word and history.topic_of(word) is None:
            return parse(word), ""
        case [what]:
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
    else:
        for number, story in enumerate(stories):
            if number:
                streams.result()
            _print_story(story, whole_stacks=topic == history.GRAPH_BREAK)
    if answer.silent:
        only = "only a summary was kept of"
        streams.say(f"{only} {', '.join(answer.silent)}, so nothing is said of that")
    lost.say_lost(store, address)
    _print_next(address, topic, stories)


def _print_story(story: Story, whole_stacks: bool) -> None:
    streams.result(story.headline, style="bold")
    for _, steps in groupby(story.steps, key=_group):
        _print_steps(list(steps), whole_stacks)
    for note in story.notes:
        streams.result(f"  {note}")


def _group(step: Step) -> tuple[object, ...]:
    """Steps that one call of a ShapeEnv made for one line belong together."""
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
    elif topic == history.RECOMPILE:
        streams.next_command("torchreel", "guards", stories[-1].facts["entry"])
    elif topic == history.GRAPH_BREAK:
        streams.next_command("torchreel", "show", steps[-1].address.partition("@")[0])
    else:
        streams.next_command("torchreel", "shapes", steps[-1].address)

"""`torchreel why ADDRESS cache`: the lookups in caches of compiled graphs, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from torchreel.analysis.why.cache_keys import CacheStory, FactorDifference, why_cache
from torchreel.commands.rendering import listing, lost, streams
from torchreel.commands.rendering.text import count, shortened
from torchreel.replay.compare.unified import parting
from torchreel.store import Store
from torchreel.store.addressing import Address

_SHOWN = 12
"""Differences that are printed of one lookup; `--json` has all."""
_WIDTH = 80  # columns of a value


def why_keys(
    store: Store, address: Address, other: tuple[Store, Address] | None, *, json: bool
) -> None:
    """Print the outcome of each lookup, and where its key differs from the nearest one."""
    stories = why_cache(store, address, other)
    if json:
        listing.write_json([story.to_json() for story in stories])
    else:
        for number, story in enumerate(stories):
            if number:
                streams.result()
            _print(story)
    lost.say_lost(store, address)
    streams.next_command("torchreel", *_next(stories))


def _next(stories: Sequence[CacheStory]) -> tuple[object, ...]:
    """Compare the compiles of the first lookup that parts from its nearest."""
    for story in stories:
        if story.nearest is not None and story.differences:
            return "diff", story.lookup.side.address, story.nearest.side.address
    return "show", stories[0].lookup.side.address


def _print(story: CacheStory) -> None:
    lookup, nearest = story.lookup, story.nearest
    why = f": {lookup.reason}" if lookup.reason else ""
    streams.result(f"{lookup.address}  {lookup.cache}: {lookup.outcome}{why}", style="bold")
    if nearest is None:
        streams.result("  no other lookup to hold it against")
        return
    streams.result(f"  nearest: {nearest.address}, a {nearest.outcome}; {story.verdict}")
    if story.differences:
        streams.result(f"  {_heading(story)}")
    for found in story.differences[:_SHOWN]:
        streams.result(f"    {found.name}: {' | '.join(_parted(found))}")
    if len(story.differences) > _SHOWN:
        streams.result(f"    and {len(story.differences) - _SHOWN} more: --json has all")


def _heading(story: CacheStory) -> str:
    if story.are_recorded_facts:
        return "torch does not write the factors of this key; of what is recorded, these differ:"
    of = count(len(story.lookup.factors), "factor")
    return f"{len(story.differences)} of {of} differ:"


def _parted(found: FactorDifference) -> Iterator[str]:
    """Yield both values; of texts with several lines, the first line that differs."""
    one, other = found.one, found.other
    if one is None or other is None:
        yield from ("(none)" if text is None else shortened(text) for text in (one, other))
        return
    for left, right in zip_longest(one.splitlines(), other.splitlines(), fillvalue=""):
        if left != right:
            yield from parting(left.strip(), right.strip(), _WIDTH)
            return
    yield "printed alike, digested differently"

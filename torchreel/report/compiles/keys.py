"""Lookups in torch's caches, each beside the nearest other one, as parts of the document.

Lives here: which lookups a compile's are held against.  Not here: what a key is made of, and which
is nearest (`torchreel.analysis.why.cache_keys`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.analysis.event_log import CompileEventLog, SharedRows
from torchreel.analysis.why.cache_keys import CacheStory, KeyLookup, lookups, stories_beside
from torchreel.report.document import ComparedFactor, ComparedKey
from torchreel.store import Store
from torchreel.store.records import Compile, StackFrame

_LONGEST = 4_000
"""Characters of one side of a factor."""
_KEPT = 64
"""Compiles whose lookups are kept, for those that come after them."""


class KeyReader:
    """Reads the lookups of compiles, of which each is needed for itself and for later ones.

    The rows of a recording that other parts of its compiles share are kept with them.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[int, list[KeyLookup]] = {}
        self._shared: dict[int, SharedRows] = {}

    def shared(self, recording: int, frames: Mapping[int, StackFrame]) -> SharedRows:
        """Return the rows that the event logs of a recording share."""
        found = SharedRows(self.store, recording, frames)
        return self._shared.setdefault(recording, found)

    def keys(self, log: CompileEventLog, earlier: Sequence[Compile]) -> list[ComparedKey]:
        """Return the lookups of a compile beside the nearest of some earlier compiles."""
        asked = self._known[log.compile.id] = lookups(log)
        if not asked:
            return []
        known = [found for row in earlier for found in self._lookups(row)]
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return [key_of(story) for story in stories_beside(asked, known)]

    def _lookups(self, row: Compile) -> list[KeyLookup]:
        if row.id not in self._known:
            self._known[row.id] = lookups(CompileEventLog(self.store, row))
        return self._known[row.id]


def key_of(story: CacheStory) -> ComparedKey:
    """Return a story of `torchreel.analysis.why.cache_keys`, as the document has it."""
    lookup, nearest = story.lookup, story.nearest
    factors = [
        ComparedFactor(found.name, _cut(found.one), _cut(found.other))
        for found in story.differences
    ]
    return ComparedKey(
        lookup.cache, lookup.address, lookup.outcome, lookup.key,
        nearest.address if nearest else "", nearest.outcome if nearest else "",
        story.verdict, factors, 0 if story.are_recorded_facts else len(lookup.factors),
    )  # fmt: skip


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST]

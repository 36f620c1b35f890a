"""Cache lookups of a compile, and the factors in which the key of one differs from another's.

Lives here: which caches of compiled graphs were asked, with what key and of what factors; which
earlier lookup, or which of another recording, comes nearest; whether a hit or a miss was right.
Not here: comparing whole compiles (`analysis.diff`).  Called by `torchreel why ADDRESS cache`.

torch writes the factors of a key of Inductor's cache into its structured trace, each with a digest
(`FxGraphHashDetails`).  Those of a key of AOTAutograd it writes only for a debug log, so that the
recorded facts that enter such a key are compared instead: the Dynamo graph and the config.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torchreel.analysis.diff.layers.code import code
from torchreel.analysis.diff.layers.facts import config
from torchreel.analysis.diff.layers.graphs import compare_graphs, graph_of
from torchreel.analysis.diff.report import DiffSide
from torchreel.analysis.event_log import CompileEventLog, compiles_of, texts
from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object

ARTIFACT = "artifact"
"""The kind of torch's trace that has the factors, one record for each lookup."""
_FACTOR = re.compile(r"\[(?P<digest>\w+)\] (?P<name>\w+(?:\[[^\]]*\])?): (?P<text>.*)", re.DOTALL)
_GRAPH = "gm"
"""The factor that is the graph."""
_HIT, _MISS = "hit", "miss"


@dataclass(frozen=True)
class KeyFactor:
    """A part of a cache key: its digest, and its text as torch prints it.

    Addresses in the text may differ where the digests are equal.
    """

    digest: str
    text: str


@dataclass(frozen=True)
class KeyLookup:
    """A lookup of a key in a cache of compiled graphs."""

    side: DiffSide = field(repr=False)
    seq: int
    cache: str
    """`FxGraphCache` or `AOTAutogradCache`, as torch names them."""
    outcome: str
    """Hit, miss or bypass."""
    key: str
    reason: str
    """The reason why the cache was bypassed."""
    factors: Mapping[str, KeyFactor] = field(repr=False)
    """By name; empty where torch did not write them."""

    @property
    def address(self) -> str:
        """The address of the event."""
        return self.side.at(self.seq)

    @property
    def is_backward(self) -> bool:
        """Return True if the graph that was looked up is a backward graph."""
        found = self.factors.get("fx_kwargs[is_backward]")
        return found is not None and found.text == "True"

    @cached_property
    def graph(self) -> Mapping[str, Json]:
        """The Dynamo graph of the compile; empty where it was not kept."""
        for row in CompileEventLog(self.side.store, self.side.compile).graphs:
            if row.stage == "dynamo":
                return graph_of(self.side.store.read_blob(row.digest))
        return {}

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "event": self.address, "cache": self.cache, "outcome": self.outcome, "key": self.key,
            "reason": self.reason, "factors": len(self.factors),
        }  # fmt: skip


@dataclass(frozen=True)
class FactorDifference:
    """A factor, or a recorded fact, in which two keys differ; None where one of them has none."""

    name: str
    one: str | None
    other: str | None


@dataclass(frozen=True)
class CacheStory:
    """A lookup beside the one with the nearest key, and the verdict."""

    lookup: KeyLookup
    nearest: KeyLookup | None = None
    differences: tuple[FactorDifference, ...] = ()
    verdict: str = ""
    """Empty where there is nothing to hold the lookup against."""

    @property
    def are_recorded_facts(self) -> bool:
        """Return True if `differences` are recorded facts, for torch wrote no factors."""
        return self.nearest is not None and not (self.lookup.factors and self.nearest.factors)

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            **self.lookup.to_json(),  # type: ignore[dict-item]
            "nearest": None if self.nearest is None else self.nearest.to_json(),
            "differences": [{**vars(found)} for found in self.differences],
            "verdict": self.verdict,
        }


def lookups(log: CompileEventLog) -> list[KeyLookup]:
    """Return the lookups of a compile, in order."""
    side, factors = DiffSide(log.store, log.compile), dict(_factors(log))
    return [
        KeyLookup(
            side, event.seq, event.name, found.outcome, found.key or "", found.reason or "",
            factors.get(found.key or "", {}),
        )
        for event, found in log.typed(CacheOutcome)
    ]  # fmt: skip


def _factors(log: CompileEventLog) -> Iterator[tuple[str, Mapping[str, KeyFactor]]]:
    """Yield each key that torch wrote the factors of."""
    for event in log.of(ARTIFACT):
        if event.payload is not None and "_cache_" in (event.name or ""):
            found = _object(log.store.read_blob(event.payload))
            parts = map(_FACTOR.fullmatch, texts(found.get("components")))
            yield (
                _text(found.get("key")),
                {part["name"]: KeyFactor(part["digest"], part["text"]) for part in parts if part},
            )


def _object(data: bytes) -> Mapping[str, Json]:
    try:
        found = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"A record of torch's trace is not JSON: {error}.") from error
    return as_object(found)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def why_cache(
    store: Store, address: Address, other: tuple[Store, Address] | None = None
) -> list[CacheStory]:
    """Return the outcome of each lookup, beside the nearest one of another recording.

    Without `other`, beside the nearest earlier one of its own recording.  Raises UnsupportedError
    if either has no lookup.
    """
    asked = _covered(store, address)
    known = None if other is None else _covered(*other)
    return stories_beside(asked, known)


def stories_beside(
    asked: Sequence[KeyLookup], known: Sequence[KeyLookup] | None
) -> list[CacheStory]:
    """Return the outcome of each lookup, beside the nearest one of `known`, or of those before."""
    candidates = _Candidates(known or ())
    places: Counter[str] = Counter()
    stories = []
    for lookup in asked:
        stories.append(_story(lookup, candidates.nearest(lookup, places[lookup.cache])))
        places[lookup.cache] += 1
        if known is None:
            candidates.add(lookup)
    return stories


def _covered(store: Store, address: Address) -> list[KeyLookup]:
    logs = [CompileEventLog(store, row) for row in compiles_of(store, address)]
    found = [lookup for log in logs for lookup in lookups(log)]
    if not found:
        raise UnsupportedError(
            f"{address} can't say: no cache of compiled graphs was asked there (the backend was "
            "not Inductor, caches were off, or the event log was not kept)."
        )
    return found


class _Candidates:
    """Lookups, by what makes one of them the nearest to another."""

    def __init__(self, found: Iterable[KeyLookup] = ()) -> None:
        self._found: dict[Hashable, list[KeyLookup]] = {}
        for lookup in found:
            self.add(lookup)

    def add(self, lookup: KeyLookup) -> None:
        """Add one that came after the others."""
        cache = lookup.cache
        names = ("cache", cache), ("key", cache, lookup.key), ("frame", cache, _frame(lookup))
        for name in names if lookup.factors else (*names, ("without factors", cache)):
            self._found.setdefault(name, []).append(lookup)

    def nearest(self, lookup: KeyLookup, place: int) -> KeyLookup | None:
        """Return the lookup of another compile whose key differs in the fewest factors.

        A lookup of the same key is always nearest, and one for the same frame nearer than another.
        Where torch wrote no factors, it is the latest for the same frame, or the one at the same
        place among the lookups of its cache.
        """
        cache, frame = lookup.cache, ("frame", lookup.cache, _frame(lookup))
        same = self._last(lookup, "key", cache, lookup.key)
        if same is not None:
            return same
        if not lookup.factors or self._last(lookup, "without factors", cache):
            alike = list(self._others(lookup, "cache", cache))[::-1]
            at_place = alike[min(place, len(alike) - 1)] if alike else None
            return self._last(lookup, *frame) or at_place
        of_frame = [
            found
            for found in self._others(lookup, *frame)
            if found.is_backward == lookup.is_backward
        ]
        alike = of_frame or list(self._others(lookup, "cache", cache))
        return min(alike[::-1], key=lambda found: _distance(lookup, found), default=None)

    def _others(self, lookup: KeyLookup, *name: Hashable) -> Iterator[KeyLookup]:
        """Yield those of another compile, the latest first."""
        found = reversed(self._found.get(name, ()))
        return (each for each in found if not _of_one_compile(each, lookup))

    def _last(self, lookup: KeyLookup, *name: Hashable) -> KeyLookup | None:
        return next(self._others(lookup, *name), None)


def _of_one_compile(one: KeyLookup, other: KeyLookup) -> bool:
    """Return True for two graphs of one compile: they are not meant to have one key."""
    return one.side.store is other.side.store and one.side.compile.id == other.side.compile.id


def _frame(lookup: KeyLookup) -> tuple[str | None, str | None, int | None]:
    row = lookup.side.compile
    return row.frame_name, row.frame_file, row.frame_line


def _distance(one: KeyLookup, other: KeyLookup) -> tuple[bool, bool, bool, int]:
    names = set(_differing(one, other))
    is_other_frame = _frame(one) != _frame(other)
    return one.is_backward != other.is_backward, is_other_frame, _GRAPH in names, len(names)


def _differing(one: KeyLookup, other: KeyLookup) -> list[str]:
    """Return the names of the factors with another digest, in torch's order."""
    names = dict.fromkeys([*one.factors, *other.factors])
    return [name for name in names if _digest(one, name) != _digest(other, name)]


def _digest(lookup: KeyLookup, name: str) -> str | None:
    found = lookup.factors.get(name)
    return None if found is None else found.digest


def _story(lookup: KeyLookup, nearest: KeyLookup | None) -> CacheStory:
    if nearest is None:
        return CacheStory(lookup)
    if lookup.key == nearest.key:
        return CacheStory(lookup, nearest, (), _of_same_key(lookup, nearest))
    found = tuple(_differences(lookup, nearest))
    return CacheStory(lookup, nearest, found, _of_other_key(lookup, nearest, found))


def _differences(one: KeyLookup, other: KeyLookup) -> Iterator[FactorDifference]:
    if one.factors and other.factors:
        for name in _differing(one, other):
            yield FactorDifference(name, _printed(one, name), _printed(other, name))
        return
    if one.graph and other.graph:
        for found in compare_graphs(one.graph, other.graph)[:1]:
            yield FactorDifference(f"the Dynamo graph, at {found.what}", found.left, found.right)
    for found in config(one.side, other.side).differences:
        yield FactorDifference(found.what, found.left, found.right)


def _printed(lookup: KeyLookup, name: str) -> str | None:
    found = lookup.factors.get(name)
    return None if found is None else found.text


def _of_same_key(one: KeyLookup, other: KeyLookup) -> str:
    """Return a phrase about two lookups of one key: a false hit if the Dynamo graphs differ."""
    if not (one.graph and other.graph):
        return "the same key"
    if compare_graphs(one.graph, other.graph):
        hit = " (false hit)" if _HIT in (one.outcome, other.outcome) else ""
        return f"the same key for another Dynamo graph: what it finds is other code{hit}"
    return "the same key for the same Dynamo graph"


def _of_other_key(one: KeyLookup, other: KeyLookup, differences: Sequence[FactorDifference]) -> str:
    """Return a phrase about two lookups of different keys: a false miss if the code is equal."""
    generated = code(one.side, other.side)
    is_kept = bool(generated.left and generated.right)
    if one.outcome == _MISS and is_kept and not generated.differences:
        return "another key for the same generated code (false miss)"
    if not differences:
        return "another key, and nothing that is recorded of it differs"
    return "another key" + (" for other code" if is_kept else "; the generated code was not kept")

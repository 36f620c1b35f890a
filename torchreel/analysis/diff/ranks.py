"""Finds the first compile, graph, guard, symbol or cache decision in which ranks of a job differ.

Lives here: which recordings are ranks of one job, and the walk along their compiles.  Not here:
what counts as a decision (`decisions`), the comparison of graphs (`layers.graphs`).

Ranks may compile one program for inputs of different sizes, so hints are no decision; what was made
of them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from torchreel.analysis.diff.decisions import Decision, DecisionReader, Decisions, Texts
from torchreel.analysis.diff.layers.graphs import compare_graphs, graph_of
from torchreel.analysis.diff.report import DiffSide, place
from torchreel.errors import UsageError
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Recording

NOTHING = "(nothing)"


@dataclass(frozen=True)
class Rank:
    """The recording of one rank, and its compiles that were compared."""

    rank: int
    store: Store
    recording: Recording
    compiles: tuple[Compile, ...]

    @property
    def address(self) -> str:
        """Return the address of the recording."""
        return place(self.store, self.recording)

    def side(self, number: int) -> DiffSide | None:
        """Return its compile of that number, in the order in which they began."""
        return DiffSide(self.store, self.compiles[number]) if number < len(self.compiles) else None


@dataclass(frozen=True)
class View:
    """The side of one rank where they part; `address` is '' if the rank has nothing there."""

    rank: int
    text: str
    address: str


@dataclass(frozen=True)
class Parting:
    """The first thing that is not the same on all ranks."""

    what: str
    """compile, config, graph, or the kind of decision: guard, symbol, cache, ..."""
    views: tuple[View, ...]
    before: str = ""
    """The last thing that they have in common."""


@dataclass(frozen=True)
class RanksReport:
    """The ranks that were compared, the number of equal compiles and decisions, the parting."""

    ranks: tuple[Rank, ...]
    compiles: int
    decisions: int
    parting: Parting | None

    @property
    def exit_status(self) -> int:
        """0 when the ranks agree, 1 when they part."""
        return 0 if self.parting is None else 1

    def to_json(self) -> Json:
        """Return it as data."""
        parting = self.parting
        return {
            "ranks": [{"rank": row.rank, "recording": row.address} for row in self.ranks],
            "same_compiles": self.compiles,
            "same_decisions": self.decisions,
            "parting": None if parting is None else {
                "what": parting.what,
                "views": [dict(vars(view)) for view in parting.views],
                "before": parting.before,
            },
        }  # fmt: skip


def diff_ranks(places: Sequence[tuple[Store, Address]]) -> RanksReport:
    """Compare the ranks of one job: its recordings are in one store, or in one for each rank.

    Of several jobs in a store the last one is compared, or the one of the named recording.  Raises
    UsageError when there are fewer than two ranks, or no compile.
    """
    ranks = _ranks(places)
    if len(ranks) < 2:
        named = ", ".join(str(address) for _, address in places)
        raise UsageError(
            f"{named} has {'no rank' if not ranks else 'one rank'} of a job with compiles in it: "
            "name the stores of all ranks (a recording knows its rank from the variable RANK)."
        )
    same, walk = 0, _Walk(ranks)
    for number in range(max(len(rank.compiles) for rank in ranks)):
        agreed, parting = walk.compile(number)
        same += agreed
        if parting is not None:
            return RanksReport(ranks, number, same, parting)
    return RanksReport(ranks, max(len(rank.compiles) for rank in ranks), same, None)


# -- which recordings -----------------------------------------------------------------------------

_Ranks = dict[int, "Rank"]


def _ranks(places: Sequence[tuple[Store, Address]]) -> tuple[Rank, ...]:
    runs: dict[str, _Ranks] = {}
    for rank in (rank for store, address in places for rank in _of(store, address)):
        run = runs.setdefault(rank.recording.run, {})
        # A process that a rank started has its number as well, and compiles less.
        known = run.get(rank.rank)
        if known is None or len(rank.compiles) > len(known.compiles):
            run[rank.rank] = rank
    if not runs:
        return ()
    several = [ranks for ranks in runs.values() if len(ranks) > 1]
    job = dict((several or list(runs.values()))[-1])
    # Each node, and without a launcher each process, has a run of its own.
    for other in reversed(list(runs.values())):
        if job.keys().isdisjoint(other) and _overlap(job, other):
            job |= other
    if len(job) < 2:  # a process may play one rank after the other
        job = {number: rank for run in runs.values() for number, rank in run.items()}
    return tuple(job[number] for number in sorted(job))


def _overlap(one: _Ranks, other: _Ranks) -> bool:
    """Return True if the processes of two runs were there at one time."""
    (began, ended), (other_began, other_ended) = map(_time, (one, other))
    return began <= other_ended and other_began <= ended


def _time(ranks: _Ranks) -> tuple[float, float]:
    rows = [rank.recording for rank in ranks.values()]
    ends = [math.inf if row.ended_ns is None else row.ended_ns for row in rows]
    return min(row.started_ns for row in rows), max(ends)


def _of(store: Store, address: Address) -> Iterator[Rank]:
    """Yield the ranks that an address covers, oldest first; of a recording, those of its run."""
    wanted = None
    if address.recording is not None:
        wanted = queries.recording(store, address.recording).run
    for row in queries.recordings(store):
        if row.kind == "replay" or row.rank is None or wanted not in (None, row.run):
            continue
        compiles = tuple(queries.compiles(store, row.id))
        if compiles:
            yield Rank(row.rank, store, row, compiles)


# -- the walk -------------------------------------------------------------------------------------


Known = Sequence[tuple[Rank, DiffSide]]


class _Walk:
    """The compiles of all ranks, one after the other."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        texts: Texts = {}
        self.ranks = ranks
        self.logs = {rank.rank: DecisionReader(rank.store, rank.compiles, texts) for rank in ranks}
        self._alike: set[tuple[str, str]] = set()
        """Fingerprints of graphs that are the same, whatever names they use."""

    def compile(self, number: int) -> tuple[int, Parting | None]:
        """Return the number of a compile's decisions equal on all ranks, and the parting if any."""
        sides = [rank.side(number) for rank in self.ranks]
        names = [NOTHING if side is None else _name(side.compile) for side in sides]
        if len(set(names)) > 1:
            return 0, self._other_compile(number, names, sides)
        known = [(rank, side) for rank, side in zip(self.ranks, sides, strict=True) if side]
        logs = {rank.rank: self.logs[rank.rank].of(number) for rank, _ in known}
        graph = self._graph(known, logs)
        place_of_graph = logs[known[0][0].rank].graph
        agreed, parting = _decisions(known, {rank: log.rows for rank, log in logs.items()})
        if graph is not None and (parting is None or place_of_graph <= agreed):
            return min(place_of_graph, agreed), graph
        return agreed, parting

    def _graph(self, known: Known, logs: Mapping[int, Decisions]) -> Parting | None:
        """Return the first node in which a rank's Dynamo graph differs from the first rank's."""
        (first, first_side), ours = known[0], logs[known[0][0].rank]
        for rank, side in known[1:]:
            theirs = logs[rank.rank]
            pair = ours.fingerprint, theirs.fingerprint
            if pair[0] == pair[1] or pair in self._alike:
                continue
            documents = _document(first_side, ours.digest), _document(side, theirs.digest)
            if found := compare_graphs(*documents):
                left, right = found[0].left or NOTHING, found[0].right or NOTHING
                views = (
                    View(first.rank, left, ours.graph_address(first_side)),
                    View(rank.rank, right, theirs.graph_address(side)),
                )
                return Parting("graph", views)
            self._alike.add(pair)
        return None

    def _other_compile(
        self, number: int, names: Sequence[str], sides: Sequence[DiffSide | None]
    ) -> Parting:
        views = [
            View(rank.rank, name, "" if side is None else side.address)
            for rank, name, side in zip(self.ranks, names, sides, strict=True)
        ]
        before = _name(self.ranks[0].compiles[number - 1]) if number else ""
        return Parting("compile", tuple(views), before)


def _name(row: Compile) -> str:
    attempt = f"_{row.attempt}" if row.attempt else ""
    where = f"{PurePath(row.frame_file).name}:{row.frame_line}"
    return f"{row.compile_id}{attempt} {row.frame_name} ({where})"


def _decisions(known: Known, rows: Mapping[int, Sequence[Decision]]) -> tuple[int, Parting | None]:
    longest = max(len(found) for found in rows.values())
    for place_ in range(longest):
        here = {
            rank: found[place_] if place_ < len(found) else None for rank, found in rows.items()
        }
        if len({None if item is None else item.key for item in here.values()}) > 1:
            return place_, _parting(known, here, rows, place_)
    return longest, None


def _parting(
    known: Known,
    here: Mapping[int, Decision | None],
    rows: Mapping[int, Sequence[Decision]],
    place_: int,
) -> Parting:
    views = []
    for rank, side in known:
        item = here[rank.rank]
        text = NOTHING if item is None else f"{item.what}: {item.text}"
        views.append(View(rank.rank, text, "" if item is None else _at(side, item)))
    kinds = dict.fromkeys(item.what for item in here.values() if item is not None)
    first = rows[known[0][0].rank]
    before = f"{first[place_ - 1].what}: {first[place_ - 1].text}" if place_ else ""
    return Parting(" or ".join(kinds), tuple(views), before)


def _at(side: DiffSide, item: Decision) -> str:
    return side.at(item.seq) if item.seq is not None else side.address


def _document(side: DiffSide, digest: str) -> Mapping[str, Json]:
    return graph_of(side.store.read_blob(digest)) if digest else {}

"""How well failures are grouped: pairwise precision and recall, of triage and of two others.

Lives here: which recordings count, the votes of pairs, the table.  Not here: making recordings.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from benchmarks.triage.programs import Variant
from benchmarks.triage.recordings import STORE
from torchreel.analysis.triage.failures import SeenFailure, failures_with_rows
from torchreel.analysis.triage.grouping import group
from torchreel.store import Store, queries


@dataclass(frozen=True)
class Labelled:
    """A failure, and the bug that it is known to be of."""

    bug: str
    variant: str
    failure: SeenFailure
    message: str
    """What torch said, '' where the process died."""


@dataclass(frozen=True)
class Score:
    """Pairs of failures that a way of grouping puts together, against those of one bug."""

    together: int
    right: int
    of_one_bug: int
    groups: int

    @property
    def precision(self) -> float:
        """The share of the pairs that were put together which are of one bug."""
        return self.right / self.together if self.together else 1.0

    @property
    def recall(self) -> float:
        """The share of the pairs of one bug that were put together."""
        return self.right / self.of_one_bug if self.of_one_bug else 1.0


def report(folder: Path, wanted: Sequence[Variant]) -> int:
    """Print what was measured; returns 1 if triage merged two bugs."""
    found, dropped, seconds = labelled(folder, wanted)
    if not found:
        print("no recording to measure: run without --only measure first")
        return 1
    names = triaged([each.failure for each in found])
    by_signature = [each.failure.signature.digest for each in found]
    by_message = [each.message or each.failure.signature.failure_class for each in found]
    first_lines = [str(each).strip().partition("\n")[0] for each in by_message]
    bare = [_unreduced(each.failure) for each in found]
    reduced = sum(each.failure.smallest is not None for each in found)
    bugs = Counter(each.bug for each in found)
    print(f"{len(found)} failures of {len(bugs)} bugs; {reduced} were minified")
    for text in dropped:
        print(f"  left out: {text}")
    print(f"{'':34}groups  pairs  precision  recall")
    kept = [place for place, each in enumerate(found) if each.failure.smallest is not None]
    of_bug = [each.bug for each in found]
    for title, given in {
        "triage": names,
        "triage, nothing minified": triaged(bare),
        "the signature alone": by_signature,
        "torch's message": by_message,
        "the first line of torch's message": first_lines,
        "of the minified: triage": [names[place] for place in kept],
        "of the minified: the signature": [by_signature[place] for place in kept],
    }.items():
        meant = of_bug if len(given) == len(found) else [of_bug[place] for place in kept]
        score = score_of(meant, given)
        print(
            f"{title:34}{score.groups:6}  {score.together:5}  {score.precision:9.3f}  "
            f"{score.recall:6.3f}"
        )
    each_took = 1000 * seconds / len(found)
    print(f"CPU milliseconds a failure, to open its store and read it: {each_took:.0f}")
    merged = _print_errors(found, names)
    return 1 if merged else 0


def labelled(folder: Path, wanted: Sequence[Variant]) -> tuple[list[Labelled], list[str], float]:
    """Return the failures that show their bug, what was left out, and how long reading took."""
    found: list[Labelled] = []
    dropped: list[str] = []
    seconds = 0.0
    for variant in wanted:
        path = folder / variant.name / STORE
        if not path.exists():
            dropped.append(f"{variant.name}: not recorded")
            continue
        began = time.process_time()
        with Store.open(path) as store:
            failures = list(failures_with_rows(store, queries.recordings(store)))
            seconds += time.process_time() - began
            messages = {row.id: row.message for row in queries.failures(store)}
        every = [
            Labelled(variant.bug, variant.name, failure, messages.get(row, "") if row else "")
            for row, failure in failures
        ]
        shown = [each for each in every if variant.expected in _said(each)]
        found += shown[:1]
        if not shown:
            others = "; ".join(_said(each)[:100] for each in every) or "no failure"
            dropped.append(f"{variant.name}: {others}")
    return found, dropped, seconds


def _said(each: Labelled) -> str:
    signature = each.failure.signature
    types = "/".join(signature.exception_types)
    return f"{signature.failure_class} {types} {signature.message} {each.message}"


def _unreduced(failure: SeenFailure) -> SeenFailure:
    return replace(failure, smallest=None)


def triaged(failures: Sequence[SeenFailure]) -> list[Hashable]:
    """Return the name of the group of each failure."""
    names = {
        failure.key: found.id + found.level
        for found in group(failures)
        for failure in found.failures
    }
    return [names[failure.key] for failure in failures]


def score_of(bugs: Sequence[str], given: Sequence[Hashable]) -> Score:
    """Compare a grouping with the bugs, pair by pair."""
    pairs = list(combinations(range(len(bugs)), 2))
    together = [(a, b) for a, b in pairs if given[a] == given[b]]
    return Score(
        len(together),
        sum(bugs[a] == bugs[b] for a, b in together),
        sum(bugs[a] == bugs[b] for a, b in pairs),
        len(set(given)),
    )


def _print_errors(found: Sequence[Labelled], names: Sequence[Hashable]) -> bool:
    """Print the groups that hold two bugs, and the bugs that lie in several groups."""
    of_group: dict[Hashable, list[Labelled]] = defaultdict(list)
    of_bug: dict[str, list[list[str]]] = defaultdict(list)
    for name, each in zip(names, found, strict=True):
        of_group[name].append(each)
    merged = False
    for members in of_group.values():
        bugs: Mapping[str, int] = Counter(each.bug for each in members)
        for bug in bugs:
            of_bug[bug].append([each.variant for each in members if each.bug == bug])
        if len(bugs) > 1:
            merged = True
            print(f"merged: {dict(bugs)}")
    for bug, parts in of_bug.items():
        if len(parts) > 1:
            told = "; ".join(", ".join(part) for part in sorted(parts, key=len, reverse=True))
            print(f"in {len(parts)} groups: {bug}: {told}")
    return merged

"""Groups failures by bug.  Two bugs in one group are the worse error: in doubt, they part.

Two levels, and every rule is here:

1. *By signature*, at once.  A signature is telling if it names a place in the compiler: then it
   makes one group.  'SIGSEGV in stage run', 'other values than eager' and what generated code
   raises name none: there, the graphs of the compiles have to be alike as well, unless the text of
   the program's functions or the operator whose result was refused tells enough
   (`program_part.ProgramPart.tells_alone`).
2. *By smallest case*, where a reduction found one.  It parts what has one signature, and joins what
   has two, if both failed at the same place, or with the same words, in the same calls.

A failure that nobody reduced joins a group of level 2 if that is the only one of its signature
whose calls are all in its own graphs.  Where no place in torch tells, both have to have failed in a
call of the same operator.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from torchreel.analysis.triage.canonical_form import Form
from torchreel.analysis.triage.failures import SeenFailure
from torchreel.store.documents.jsontypes import canonical_json, digest_of
from torchreel.store.failures.signature import Signature

_GENERATED = "<generated>"


@dataclass(frozen=True)
class BugGroup:
    """Failures that are taken for one bug."""

    id: str
    """The same in every store, as long as the smallest case is the same; more characters follow
    where another bug has an equal one."""
    level: str
    """'case' if a smallest case stands for it, 'signature' if nobody reduced any of them."""
    failures: tuple[SeenFailure, ...]
    """The oldest first; those of the baseline as well."""


def group(found: Iterable[SeenFailure]) -> list[BugGroup]:
    """Return the groups; a failure that lies in two stores counts once."""
    failures = list({failure.key: failure for failure in _reduced_last(found)}.values())
    by_case = _by_case([failure for failure in failures if failure.smallest is not None])
    of_signature: dict[str, list[_CaseGroup]] = {}
    for each in by_case:
        for digest in each.signatures:
            of_signature.setdefault(digest, []).append(each)
    by_signature: dict[Hashable, list[SeenFailure]] = {}
    for failure in failures:
        if failure.smallest is None:
            joined = _case_group(failure, of_signature.get(failure.signature.digest, ()))
            if joined is not None:
                joined.add(failure)
            else:
                by_signature.setdefault(_signature_key(failure), []).append(failure)
    times = Counter(each.name for each in by_case)
    groups = [
        _group("case", each.members, each.name, each.least if times[each.name] > 1 else "")
        for each in by_case
    ]
    groups += [_group("signature", members, str(key)) for key, members in by_signature.items()]
    return groups


def _reduced_last(found: Iterable[SeenFailure]) -> list[SeenFailure]:
    """Sort failures so that, of two copies, the one with the smaller case comes last.

    A dictionary keeps the last one.
    """
    return sorted(found, key=lambda each: -(each.smallest.size if each.smallest else 1 << 62))


def _group(level: str, members: Sequence[SeenFailure], name: str, of_many: str = "") -> BugGroup:
    """Return a group by its name; `of_many` tells it from others of that name."""
    number = digest_of(name.encode("utf-8", "replace"))[:12]
    ordered = tuple(sorted(members, key=lambda each: (each.time_ns, each.address)))
    return BugGroup(f"{number}-{of_many[:8]}" if of_many else number, level, ordered)


# -- by signature ---------------------------------------------------------------------------------


def is_telling(signature: Signature) -> bool:
    """Return True if a signature names a place in the compiler, or what its compiler says."""
    if signature.failure_class != "exception" or signature.stage == "run":
        return False
    if not signature.frames:
        return bool(signature.message)
    return not signature.frames[0].endswith(_GENERATED)


def _is_enough(failure: SeenFailure) -> bool:
    """Return True if the place and the words of a failure are those of one bug alone."""
    return is_telling(failure.signature) and not failure.part.is_reported


def _has_place(failure: SeenFailure) -> bool:
    """Return True if two such failures whose smaller cases make the same calls are one bug."""
    return _is_enough(failure) or bool(failure.part.operator)


def _signature_key(failure: SeenFailure) -> tuple[str, ...]:
    signature = failure.signature
    if failure.part.is_reported and failure.part.words:
        # The statement is the same, and the dtype that it was given is the model's.
        signature = replace(signature, message=_DTYPE.sub("DTYPE", signature.message))
    key = signature.digest, *failure.part.words
    is_known = is_telling(failure.signature) or failure.part.tells_alone
    if is_known and not failure.part.needs_graph:
        return key
    return (*key, _graphs_key(failure))


def _graphs_key(failure: SeenFailure) -> str:
    """Return a key that is equal for equal graphs; without a graph, the key of the run."""
    if not failure.calls:
        return failure.process[0]
    return canonical_json(dict(failure.calls)).decode("utf-8", "replace")


# -- by smallest case -----------------------------------------------------------------------------


@dataclass
class _CaseGroup:
    """Failures with one smallest case, by the one that stands for them."""

    form: Form
    name: str
    least: str
    """The least digest of the signatures that were reduced to this case; no other group of its name
    has it."""
    operator: str
    """The operator in whose call they failed, where generated code called it."""
    has_place: bool
    members: list[SeenFailure] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)
    """The digests of the signatures of its failures."""
    keys: set[tuple[str, ...]] = field(default_factory=set)
    """The keys of its failures, as of those that nobody reduced (`_signature_key`)."""

    def add(self, failure: SeenFailure) -> None:
        """Take a failure in."""
        self.members.append(failure)
        self.signatures.add(failure.signature.digest)
        self.keys.add(_signature_key(failure))

    def join(self, other: _CaseGroup) -> None:
        """Take the failures of another group in."""
        self.members += other.members
        self.signatures |= other.signatures
        self.keys |= other.keys

    @property
    def size(self) -> int:
        """The number of calls in the case."""
        return sum(self.form.calls.values())


def _by_case(reduced: Sequence[SeenFailure]) -> list[_CaseGroup]:
    """Group reduced failures by the keys of their cases, and join cases that contain others."""
    parent = list(range(len(reduced)))
    first: dict[Hashable, int] = {}

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for place, failure in enumerate(reduced):
        for key in _case_keys(failure):
            other = first.setdefault(key, place)
            parent[root(place)] = root(other)
    members: dict[int, list[SeenFailure]] = {}
    for place, failure in enumerate(reduced):
        members.setdefault(root(place), []).append(failure)
    return _without_larger([_case_group_of(each) for each in members.values()])


def _case_keys(failure: SeenFailure) -> Iterator[Hashable]:
    """Yield the keys of a reduced failure: two failures with a key in common are one bug."""
    assert failure.smallest is not None
    signature, form = failure.signature, failure.smallest.form
    if not _is_enough(failure):
        yield signature.digest, form.shape
        return
    types = tuple(name for name, _ in groupby(signature.exception_types))
    yield signature.digest, form.outline
    if signature.frames:
        yield "place", types, signature.frames[0], form.outline
    yield "words", signature.stage, types, words(signature.message), form.outline


def _case_group_of(members: list[SeenFailure]) -> _CaseGroup:
    """Return a group, by the smallest of its cases."""
    known = [each for each in members if each.smallest is not None]
    least = min(known, key=lambda each: (each.smallest.size, each.signature.digest))  # type: ignore[union-attr]
    assert least.smallest is not None
    form = least.smallest.form
    kept = form.outline if _is_enough(least) else form.shape
    name = f"{least.signature.failure_class} {least.signature.exception_types} {kept}"
    least_digest = min(each.signature.digest for each in members)
    first = members[0]
    found = _CaseGroup(form, name, least_digest, first.part.operator, _has_place(first))
    for each in members:
        found.add(each)
    return found


def _without_larger(groups: list[_CaseGroup]) -> list[_CaseGroup]:
    """Join a group to a smaller group of the same signature whose calls its own case contains.

    A reduction ends with more calls than the bug needs if its budget was spent, or if it found no
    way past a call. A group that contains the calls of two smaller groups is not joined: it could
    be either bug.
    """
    kept: list[_CaseGroup] = []
    for each in sorted(groups, key=lambda found: found.size):
        within = [
            other
            for other in kept
            if other.size < each.size
            and other.signatures & each.signatures
            and each.has_place
            and other.operator == each.operator
            and other.form.within(each.form.calls)
        ]
        if len(within) == 1:
            within[0].join(each)
        else:
            kept.append(each)
    return kept


def _case_group(failure: SeenFailure, same: Sequence[_CaseGroup]) -> _CaseGroup | None:
    """Return the group of a failure that was not reduced, if there is just one that it can be.

    `same` are the groups of its signature.
    """
    same = [each for each in same if each.operator == failure.part.operator]
    if not same:
        return None
    if not _has_place(failure):
        key = _signature_key(failure)
        same = [each for each in same if key in each.keys]
    elif failure.calls:
        same = [each for each in same if each.form.within(failure.calls)]
    return same[0] if len(same) == 1 else None


# -- words ----------------------------------------------------------------------------------------

_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_DTYPE = re.compile(
    r"\b(?:torch\.|c10::|at::)?(?:b?float|u?int|complex|half|double|bool|long|short|byte|char)"
    r"(?:\d+|N)?(?:_t)?\b|\b(?:[fiu](?:1|8|16|32|64|128)|fp(?:8|16|32|64)|bf16)\b",
    re.IGNORECASE,
)


def words(message: str) -> str:
    """Return a normalised message without what is quoted and without the names of dtypes."""
    return " ".join(_DTYPE.sub("DTYPE", _QUOTED.sub("QUOTED", message)).split())

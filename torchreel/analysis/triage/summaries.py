"""`triage`: the failures of many stores in groups, and what is said of each group.

Lives here: reading the stores, and counting.  Not here: which failures are one bug (`grouping`),
printing (`torchreel.commands.triage`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from torchreel.analysis.triage.failure_kinds import StoredFailures
from torchreel.analysis.triage.failures import SeenFailure, failures_with_rows
from torchreel.analysis.triage.grouping import BugGroup, group
from torchreel.analysis.trust import may_need_trust
from torchreel.errors import DamagedStore, StoreError
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

_MOST_ADDRESSES = 1000
"""Of one group, in the JSON document."""


@dataclass(frozen=True)
class GroupSummary:
    """One bug, as far as anybody can tell: what it is, who saw it, and where to go on."""

    id: str
    """Made from the smallest case, or from the signature where nobody reduced any of them."""
    level: str
    """'case' or 'signature': what the failures were joined by (`grouping`)."""
    is_new: bool
    """True if no failure of the baseline is in it; False without a baseline."""
    failure_class: str
    stage: str
    what: str
    """The types of the exception, or what else happened."""
    message: str
    """The first line of the normalised message."""
    place: str
    """The innermost function of torch."""
    failures: int
    processes: int
    runs: int
    ranks: tuple[int, ...]
    first_seen_ns: int
    last_seen_ns: int
    torch: tuple[str, ...]
    """The versions that it was seen with."""
    signatures: tuple[str, ...]
    """Digests, as in the column `failures.signature_digest`."""
    smallest: str
    """The address of the failure with the smallest case, or else with the smallest graph."""
    smallest_signature: str
    """The digest of its signature."""
    smallest_size: int | None
    """The size of that; None where no graph was recorded."""
    smallest_unit: str
    is_reduced: bool
    """True if the smallest is a case that a reduction found."""
    is_minimal: bool
    """True if that reduction came to its end: no pass could take another step."""
    needs_trust: bool
    """True if the smallest is code of the program's, which only runs with `--trust`."""
    addresses: tuple[str, ...]
    """Of the failures, the oldest first."""

    @property
    def next(self) -> tuple[str, ...]:
        """The command that goes on from here: write down the smallest case, or look for it."""
        trust = ("--trust",) if self.needs_trust else ()
        return "torchreel", "export" if self.is_reduced else "minify", self.smallest, *trust

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {**asdict(self), "next": list(self.next)}


@dataclass(frozen=True)
class Triage:
    """The groups of some stores, those that were seen most often first."""

    groups: tuple[GroupSummary, ...]
    stores: int
    """The number of stores that were read; one of the baseline counts if it was named twice."""
    unreadable: tuple[str, ...]
    """The reasons why a store, or a part of one, is not in it."""

    @property
    def exit_status(self) -> int:
        """The status of a command that found nothing wrong in the groups themselves."""
        return DamagedStore.exit_status if self.unreadable else 0

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        groups: Json = [each.to_json() for each in self.groups]
        return {"groups": groups, "stores": self.stores, "unreadable": list(self.unreadable)}


def triage(targets: Sequence[str], baseline: Sequence[str] = ()) -> Triage:
    """Group the failures of the stores, by path or URL.

    With a baseline, a group is new if nothing in the baseline is of it.  A store that can't be
    read is left out, and named.  Raises StoreError if that is so of all, or of any part of the
    baseline: without it, what is known would look new.
    """
    unreadable: list[str] = []
    known = [failure for target in _distinct(baseline) for failure in _baseline_of(target)]
    found: list[SeenFailure] = []
    errors: list[StoreError] = []
    wanted = _distinct(targets)
    for target in wanted:
        try:
            found += _read(target, unreadable)
        except StoreError as error:
            errors.append(error)
    if errors and len(errors) == len(wanted):
        raise errors[0]
    groups = [
        _summary(each, has_baseline=bool(baseline))
        for each in group([*found, *known])
        if not all(failure.is_baseline for failure in each.failures)
    ]
    groups.sort(key=lambda each: (not each.is_new, -each.failures, -each.last_seen_ns))
    return Triage(tuple(groups), len(wanted) - len(errors), (*map(str, errors), *unreadable))


def _distinct(targets: Sequence[str]) -> list[str]:
    """Return each store once, whatever paths lead to it: a link, or another spelling."""
    return list({_identity(target): target for target in reversed(targets)}.values())[::-1]


def _identity(target: str) -> object:
    try:
        status = os.stat(target)
    except (OSError, ValueError):
        return target
    return status.st_dev, status.st_ino


def triage_of(address: Address) -> Triage:
    """Return the groups of the failures of one recording or compile, among those of its store.

    Of a store with kinds (`failure_kinds`) those of these groups are read alone.
    """
    with Store.open(address.store) as store, store.as_far_as_readable() as unreadable:
        asked = list(_asked(store, address))
        keys = {failure.key for failure in asked}
        crashed = any(failure.signature.failure_class == "crash" for failure in asked)
        known = StoredFailures.read(store, unwritten=crashed)
        groups = [
            _summary(_whole(each, known), has_baseline=False)
            for each in group([*asked, *known.kinds.values(), *known.others])
            if any(failure.key in keys for failure in each.failures)
        ]
    return Triage(tuple(groups), 1, tuple(unreadable))


def _asked(store: Store, address: Address) -> Iterator[SeenFailure]:
    """Yield the failures of what an address names."""
    assert address.recording is not None
    recording, place = queries.recording(store, address.recording), None
    if address.compile is not None:
        place = f"{store.target}#{queries.compile_at(store, address).place}"
    for _, failure in failures_with_rows(store, [recording]):
        if place in (None, failure.address):
            yield failure


def _whole(found: BugGroup, known: StoredFailures) -> BugGroup:
    """Return a group with the failures themselves, in the place of the stand-ins of kinds."""
    here = {failure.address for failure in found.failures}
    kinds = [digest for digest, failure in known.kinds.items() if failure.address in here]
    others = [failure for failure in known.others if failure.address in here]
    members = sorted(
        [*known.of_kinds(kinds), *others], key=lambda each: (each.time_ns, each.address)
    )
    return replace(found, failures=tuple(members))


def _read(target: str, unreadable: list[str]) -> Sequence[SeenFailure]:
    with Store.open(target) as store, store.as_far_as_readable() as left_out:
        found = list(StoredFailures.read(store).each())
        unreadable += left_out
    return found


def _baseline_of(target: str) -> Sequence[SeenFailure]:
    """Return one failure of each kind in a baseline: their number does not matter there."""
    with Store.open(target) as store, store.as_far_as_readable() as unreadable:
        known = StoredFailures.read(store)
        found = [
            replace(failure, is_baseline=True) for failure in (*known.kinds.values(), *known.others)
        ]
    if unreadable:
        raise DamagedStore(
            f"The baseline {target} can't be read in full: {unreadable[0]} What it lacks would "
            "look new: name a baseline that is whole."
        )
    return found


def _summary(found: BugGroup, *, has_baseline: bool) -> GroupSummary:
    seen = [each for each in found.failures if not each.is_baseline]
    least = min(seen, key=size_key)
    signature = least.signature
    is_known = any(each.is_baseline for each in found.failures)
    return GroupSummary(
        id=found.id,
        level=found.level,
        is_new=has_baseline and not is_known,
        failure_class=signature.failure_class,
        stage=signature.stage,
        what=_what(signature),
        message=signature.message.partition("\n")[0],
        place=signature.frames[0] if signature.frames else "",
        failures=len(seen),
        processes=len({each.process for each in seen}),
        runs=len({each.process[0] for each in seen}),
        ranks=tuple(sorted({each.rank for each in seen if each.rank is not None})),
        first_seen_ns=min(each.time_ns for each in seen),
        last_seen_ns=max(each.time_ns for each in seen),
        torch=tuple(sorted({each.torch for each in seen if each.torch})),
        signatures=tuple(sorted({one.digest for one in {each.signature for each in seen}})),
        smallest=least.address,
        smallest_signature=signature.digest,
        smallest_size=least.smallest.size if least.smallest else least.graph_size,
        smallest_unit=least.smallest.unit if least.smallest else "call node",
        is_reduced=least.smallest is not None,
        is_minimal=least.smallest is not None and least.smallest.is_minimal,
        needs_trust=(
            least.smallest.unit == "statement"
            if least.smallest
            else least.needs_trust or may_need_trust(signature)
        ),
        addresses=tuple(each.address for each in seen[:_MOST_ADDRESSES]),
    )


def size_key(failure: SeenFailure) -> tuple[bool, int, int, str]:
    """Return the key by which the smallest failure is the least.

    Reduced cases come before graphs, small ones before large ones, old ones before new ones.
    """
    size = failure.smallest.size if failure.smallest is not None else failure.graph_size
    known = size if size is not None else 1 << 62
    return failure.smallest is None, known, failure.time_ns, failure.address


def _what(signature: Signature) -> str:
    match signature.failure_class:
        case "exception":
            return "/".join(dict.fromkeys(signature.exception_types))
        case "crash":
            return signature.signal or "the process died"
        case "hang":
            return "did not end"
        case "memory":
            return "out of memory"
    return f"other {signature.message} than eager"

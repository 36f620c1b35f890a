"""Other failures that a reduction met on its way: each a case to be exported and reduced.

Each has a number, which is unique in its store. Called by `export` and `initial_cases`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.errors import DamagedStore, UntrustedError, UsageError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import ByCatch, Compile


@dataclass(frozen=True)
class StoredOtherFailure:
    """Another failure that a reduction met: its smallest case, and the compile it came from."""

    row: ByCatch
    case: AnyCase
    owner: Compile


def find_other_failure(store: Store, number: int, *, trust: bool) -> StoredOtherFailure:
    """Return the other failure of that number.

    Raises UsageError when there is none, and `UntrustedError` for a program without `trust`.
    """
    rows = {
        row.id: row for one in queries.reductions(store) for row in queries.by_catch(store, one)
    }
    if number not in rows:
        known = f"it has {', '.join(map(str, sorted(rows)))}" if rows else "it has none"
        raise UsageError(f"{store.target} has no other failure of number {number}: {known}.")
    row = rows[number]
    case = StoreJournal(store, row.signature, "", None).accepted(row.case_digest)
    if case is None:
        raise DamagedStore(f"{store.target} lacks the case of its other failure {number}.")
    if case.is_code and not trust:
        raise UntrustedError(
            f"The other failure {number} is a program that came with the store, which would be "
            "run. If you trust who made it, add --trust."
        )
    return StoredOtherFailure(row, case, _owner(store, row))


def _owner(store: Store, row: ByCatch) -> Compile:
    """Return the compile whose failure was being reduced when this was met."""
    reductions = {found.id: found for found in queries.reductions(store)}
    failures = {found.id: found for found in queries.failures(store)}
    failure = failures.get(reductions[row.reduction_id].failure_id or 0)
    if failure is None or failure.compile_id is None:
        raise DamagedStore(
            f"{store.target} does not say where its other failure {row.id} comes from."
        )
    return queries.compile_by_id(store, failure.compile_id)

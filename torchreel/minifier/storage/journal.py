"""The journal of a search: verdicts, accepted cases, its progress, confirmations, other failures.

`StoreJournal` keeps them in a store. A second run is free then, and an interrupted one goes on
exactly where it stopped: the search is deterministic, and every verdict is found again.
`MemoryJournal` keeps them for the length of one search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from sqlalchemy import Row, select

from torchreel.errors import DamagedStore, StoreError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.results.verdicts import OracleReport, Verdict
from torchreel.minifier.storage.findings import keep_finding, latest_finding
from torchreel.minifier.storage.stored_cases import read_case
from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list
from torchreel.store.failures.signature import Signature
from torchreel.store.writer import Writer


class Journal(Protocol):
    """The memory of a search."""

    problem: str
    """The reason why something could not be kept; empty as long as everything was."""

    def verdict(self, case: AnyCase) -> OracleReport | None:
        """Return the report on a case, in this environment and for this signature."""

    def accepted(self, digest: str) -> AnyCase | None:
        """Return a case that failed with the signature, with the descriptions that its run
        computed.
        """

    def keep(self, case: AnyCase, report: OracleReport) -> None:
        """Keep a verdict in the place of an earlier one.

        `case` is kept as a document when its verdict is `same` or `other`.
        """

    def confirmed(self, case: AnyCase) -> tuple[int, int] | None:
        """Return how often the result of a search failed when it was run again, of how many runs.

        None for a case that was not.
        """

    def confirm(self, case: AnyCase, failures: int, tries: int) -> None:
        """Keep how often the result of a search failed when it was run again."""

    def begin(self, start: AnyCase) -> int | None:
        """Note that a search starts; return its number, where there is one."""

    def progress(self, best: AnyCase, *, status: str, runs: int, hits: int, seconds: float) -> None:
        """Keep the best case so far, and the state of the search."""

    def other_failure(self, signature: Signature, case: AnyCase) -> None:
        """Keep another failure, and the smallest case so far that shows it."""


class MemoryJournal:
    """Forgets everything with the process."""

    problem = ""

    def __init__(self) -> None:
        self.verdicts: dict[str, OracleReport] = {}
        self.cases: dict[str, AnyCase] = {}
        self.confirmations: dict[str, tuple[int, int]] = {}

    def verdict(self, case: AnyCase) -> OracleReport | None:
        """See `Journal`."""
        return self.verdicts.get(case.digest)

    def accepted(self, digest: str) -> AnyCase | None:
        """See `Journal`."""
        return self.cases.get(digest)

    def keep(self, case: AnyCase, report: OracleReport) -> None:
        """See `Journal`."""
        self.verdicts[case.digest] = report
        self.cases[case.digest] = case

    def confirmed(self, case: AnyCase) -> tuple[int, int] | None:
        """See `Journal`."""
        return self.confirmations.get(case.digest)

    def confirm(self, case: AnyCase, failures: int, tries: int) -> None:
        """See `Journal`."""
        self.confirmations[case.digest] = failures, tries

    def begin(self, start: AnyCase) -> int | None:
        """See `Journal`."""
        return None

    def progress(self, best: AnyCase, *, status: str, runs: int, hits: int, seconds: float) -> None:
        """See `Journal`."""

    def other_failure(self, signature: Signature, case: AnyCase) -> None:
        """See `Journal`."""


@dataclass(frozen=True)
class _Keys:
    signature: str
    environment: str


class StoreJournal:
    """Keeps everything in a store that is open for writing.

    A store that can't grow any more (a full disk) does not end a search: what it does not take is
    kept in memory, and the best case is offered to it again with every step.
    """

    def __init__(
        self, store: Store, signature: Signature, environment: str, failure_id: int | None
    ) -> None:
        self._store, self._failure = store, failure_id
        self._signature = signature
        self._keys = _Keys(signature.digest, environment)
        self._reduction: int | None = None
        self._caught: dict[str, int] = {}
        self._memory = MemoryJournal()
        self.problem = ""

    def _write(self, action: Callable[[Writer], None]) -> bool:
        """Write in one transaction; return True if the store took it."""
        try:
            with self._store.writer() as writer:
                action(writer)
        except StoreError as error:
            self.problem = str(error)
            return False
        return True

    def verdict(self, case: AnyCase) -> OracleReport | None:
        """See `Journal`."""
        if (known := self._memory.verdict(case)) is not None:
            return known
        table = schema.verdicts
        query = select(table).where(
            table.c.case_digest == case.digest,
            table.c.signature_digest == self._keys.signature,
            table.c.environment_digest == self._keys.environment,
        )
        rows = self._store.rows(query)
        return _report(rows[0]) if rows else None

    def accepted(self, digest: str) -> AnyCase | None:
        """See `Journal`."""
        if (known := self._memory.accepted(digest)) is not None:
            return known
        return read_case(self._store, digest)

    def keep(self, case: AnyCase, report: OracleReport) -> None:
        """See `Journal`."""
        observed: dict[str, Json] = {
            "signature": report.observed.to_json() if report.observed is not None else None,
            "detail": report.detail,
            "stage": report.stage,
            "note": report.note,
            "missing": list(report.missing),
        }

        def put(writer: Writer) -> None:
            writer.put_over(
                "verdicts",
                case_digest=case.digest,
                signature_digest=self._keys.signature,
                environment_digest=self._keys.environment,
                verdict=report.verdict,
                observed=observed,
                seconds=report.seconds,
            )
            if report.verdict in ("same", "other"):
                self._document(writer, case)

        if not self._write(put):
            self._memory.keep(case, report)

    def confirmed(self, case: AnyCase) -> tuple[int, int] | None:
        """See `Journal`."""
        if (known := self._memory.confirmed(case)) is not None:
            return known
        keys = self._keys
        match latest_finding(self._store, "confirmation", case, keys.environment, self._signature):
            case {"failures": int(failures), "tries": int(tries)} if 0 < failures <= tries:
                return failures, tries
        return None  # a stranger's finding may be anything

    def confirm(self, case: AnyCase, failures: int, tries: int) -> None:
        """See `Journal`."""
        found: dict[str, Json] = {"failures": failures, "tries": tries}
        environment = self._keys.environment
        try:
            keep_finding(self._store, "confirmation", case, self._signature, environment, found)
        except StoreError as error:
            self.problem = str(error)
            self._memory.confirm(case, failures, tries)

    def _document(self, writer: Writer, case: AnyCase) -> None:
        writer.put(
            "cases",
            digest=case.digest,
            failure_id=self._failure,
            call_nodes=case.call_nodes,
            document=writer.blob(case.to_bytes()),
        )

    def begin(self, start: AnyCase) -> int | None:
        """See `Journal`."""
        with self._store.writer() as writer:
            self._document(writer, start)
            self._reduction = writer.add(
                "reductions",
                failure_id=self._failure,
                start_case=start.digest,
                best_case=start.digest,
                status="running",
                oracle_runs=0,
                cache_hits=0,
                seconds=0.0,
                started_ns=time.time_ns(),
            )
        return self._reduction

    def progress(self, best: AnyCase, *, status: str, runs: int, hits: int, seconds: float) -> None:
        """See `Journal`."""
        if self._reduction is None:
            return
        number = self._reduction

        def update(writer: Writer) -> None:
            if self.problem:
                self._document(writer, best)
            writer.update(
                "reductions",
                number,
                best_case=best.digest,
                status=status,
                oracle_runs=runs,
                cache_hits=hits,
                seconds=seconds,
            )

        self._write(update)

    def other_failure(self, signature: Signature, case: AnyCase) -> None:
        """See `Journal`."""

        def put(writer: Writer) -> None:
            known = self._caught.get(signature.digest)
            if self.problem:
                self._document(writer, case)
            if known is not None:
                writer.update("by_catch", known, case_digest=case.digest)
            elif self._reduction is not None:
                self._caught[signature.digest] = writer.add(
                    "by_catch",
                    reduction_id=self._reduction,
                    signature_digest=signature.digest,
                    signature=signature.to_json(),
                    case_digest=case.digest,
                )

        if not self._write(put):
            self._caught.pop(signature.digest, None)  # the row may have been rolled back


def _report(row: Row[tuple[object, ...]]) -> OracleReport:
    observed = row.observed
    if not isinstance(observed, Mapping):
        raise DamagedStore("A verdict of the store does not say what was observed.")
    signature = observed.get("signature")
    return OracleReport(
        cast(Verdict, row.verdict),
        Signature.from_json(signature) if signature is not None else None,
        str(observed.get("detail", "")),
        str(observed.get("stage", "")),
        float(row.seconds),
        note=str(observed.get("note", "")),
        missing=tuple(map(str, as_list(observed.get("missing")))),
    )

"""Does it still fail in the same way? First as a case, then as the bundle that a stranger gets.

Lives here: the judge of candidates, and the check of a written bundle. The processes are those of
the minifier (`oracle`, `minifier.repro.check`): confined, and the last one has torch alone.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from torchreel.errors import DamagedStore, RefusedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro import ExportOptions, best_form
from torchreel.minifier.repro.failure_summary import best_known
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store import Store, queries
from torchreel.store.failures.signature import Signature, normalise_message

_TIMES = 2
"""A candidate that fails once is run again: what fails by chance proves nothing."""


@dataclass(frozen=True)
class Shown:
    """The result of a case in a process that knew nothing of the program."""

    holds: bool
    observed: Signature | None
    detail: str


@dataclass(frozen=True)
class Verification:
    """The result of the written bundle."""

    holds: bool
    how: str
    """In a few words, where it was run."""
    detail: str


class Judge:
    """Judges constructed cases against the recorded signature."""

    def __init__(self, oracle: WorkerOracle, wanted: Signature, pseudonyms: Pseudonyms) -> None:
        self._oracle = oracle
        self._wanted = wanted
        self._renamed = renamed(wanted, pseudonyms)

    def show(self, case: Case) -> Shown:
        """Return the result of a case; the first that holds sets the signature to look for."""
        report = self._judged(case)
        if report.verdict == "other" and self._is_renamed(report):
            assert report.observed is not None, "another failure has a signature"
            self._wanted = self._renamed
            self._oracle.look_for(report.observed)
            report = self._judged(case)
        holds = report.verdict == "same"
        return Shown(holds, report.observed, report.detail or report.verdict)

    def holds(self, case: Case) -> bool:
        """Return True if a case fails in the same way."""
        return self.show(case).holds

    def _judged(self, case: Case) -> OracleReport:
        report = self._oracle.judge(case)
        for _ in range(case.repeats - 1):
            if report.verdict in ("same", "invalid"):
                break
            report = self._oracle.judge(case)
        return report

    def _is_renamed(self, report: OracleReport) -> bool:
        """Return True if it is the recorded failure, with pseudonyms in its message."""
        seen, wanted = report.observed, self._renamed
        if seen is None:
            return False
        # Of a process that nobody waited for, the signal was not recorded.
        unknown = wanted.failure_class == "crash" and wanted.signal is None
        return seen.matches(replace(wanted, signal=seen.signal) if unknown else wanted)


def renamed(signature: Signature, pseudonyms: Pseudonyms) -> Signature:
    """Return a signature in whose message the names of the program are pseudonyms.

    Of an exception, a pseudonym that looks like a symbol of torch's is normalised as one.
    """
    message = pseudonyms.in_text(signature.message)
    if signature.failure_class == "exception":
        message = normalise_message(message)
    return replace(signature, message=message)


def verify(path: Path, case: Case, oracle: WorkerOracle) -> Verification:
    """Read a bundle as its reader will, and run its case.

    It runs as a script in a fresh process, where only torch can be imported; a case that no script
    can hold, in a fresh fork of the minifier's worker.
    """
    with Store.open(path) as store:
        row = queries.latest_failing(store)
        failure = queries.failure_of(store, row) if row is not None else None
        if row is None or failure is None:
            raise DamagedStore(f"{path} holds no failure.")
        read, story = best_known(store, row, failure, MinifyOptions())
        if not isinstance(read, Case) or read.digest != case.digest:
            raise DamagedStore(f"{path} does not hold the case that was written into it.")
        report = oracle.judge(read)
        again = oracle.judge(read) if report.verdict == "same" else report
        if again.verdict != "same":
            return Verification(False, "in a fresh process", again.detail or again.verdict)
        try:
            with tempfile.TemporaryDirectory(prefix="torchreel-share-") as folder:
                _, result = best_form(read, story, ExportOptions(Path(folder)))
        except RefusedError as error:
            return Verification(True, "in a confined process of torchreel", str(error))
    if result.holds:
        return Verification(True, "in a fresh process, with torch alone", result.detail)
    how = "in a confined process of torchreel, and not as a script with torch alone"
    return Verification(True, how, result.detail)

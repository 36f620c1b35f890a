"""An oracle that runs a command of the user's: any interestingness test.

First the worker has to find that eager mode accepts the case. The command comes from the command
line, never from a store. Not here: running the command (`command`), writing the script that it
gets (`scripts.script`). Called by `minify`.
"""

from __future__ import annotations

import hashlib
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.options import RunLimits
from torchreel.minifier.oracle.command import CANNOT_JUDGE, INTERESTING, CommandResult, run_command
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.store.documents.jsontypes import canonical_json, digest_of
from torchreel.store.failures.signature import Signature

# The command may take ten times as long as it did when it first found a case interesting.
_FIRST_SECONDS = 600.0
_TIMES, _LEAST_SECONDS = 10.0, 30.0
# What a shell, and a program that started another, exits with where SIGKILL or SIGTERM ended that.
_KILLED = (128 + signal.SIGKILL, 128 + signal.SIGTERM)
_NO_BOUNDS = RunLimits()


class CommandOracle:
    """Judges cases by a user's command, once eager has accepted them in a worker.

    `script_of` writes the script that the command gets; it raises `UnsupportedError` for a case
    that no script can hold.
    """

    def __init__(
        self,
        worker: WorkerOracle,
        command: Sequence[str],
        wanted: Signature,
        script_of: Callable[[AnyCase, Signature], str],
        bounds: RunLimits = _NO_BOUNDS,
    ) -> None:
        self._script_of = script_of
        self._worker, self._command, self.signature = worker, tuple(command), wanted
        self._seconds = bounds.seconds
        self._first: float | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="torchreel-script-")

    @property
    def environment(self) -> str:
        """Return the digest of the worker's environment and of the text of the command."""
        texts = [
            hashlib.sha256(Path(word).read_bytes()).hexdigest()
            for word in self._command
            if Path(word).is_file()
        ]
        return digest_of(canonical_json([self._worker.environment, list(self._command), *texts]))

    def look_for(self, signature: Signature) -> None:
        """Take another signature; the command decides all the same."""
        self.signature = signature
        self._worker.look_for(signature)

    def judge(self, case: AnyCase) -> OracleReport:
        """Return the command's verdict on a case that eager accepts."""
        report = self._worker.judge(case)
        if report.verdict != "none":
            return report
        try:
            text = self._script_of(case, self.signature)
        except UnsupportedError as error:
            return replace(report, verdict="invalid", detail=f"no script can hold it: {error}")
        path = Path(self._directory.name) / "repro.py"
        path.write_text(text, encoding="utf-8")
        return self._judged(report, run_command(self._command, path, self._limit()))

    def _limit(self) -> float:
        if self._seconds is not None:
            return self._seconds
        if self._first is None:
            return _FIRST_SECONDS
        return max(_TIMES * self._first, _LEAST_SECONDS)

    def _judged(self, report: OracleReport, ended: CommandResult) -> OracleReport:
        seconds = report.seconds + ended.seconds
        if ended.status == INTERESTING:
            self._first = self._first or ended.seconds
            return replace(report, verdict="same", observed=self.signature, seconds=seconds)
        if ended.status is None or ended.status == CANNOT_JUDGE:
            why = "did not end in time" if ended.status is None else "could not judge"
            detail = f"the command {why}: {ended.said}"
            return replace(report, verdict="unjudged", detail=detail, seconds=seconds)
        if ended.status < 0 or ended.status in _KILLED:
            detail = f"a signal ended the command ({ended.status}): {ended.said}"
            return replace(
                report, verdict="unjudged", detail=detail, seconds=seconds, lasting=False
            )
        detail = f"the command exited with {ended.status}: {ended.said}"
        return replace(report, detail=detail, seconds=seconds)

    def close(self) -> None:
        """Remove the directory of the scripts; the worker is its owner's to end."""
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

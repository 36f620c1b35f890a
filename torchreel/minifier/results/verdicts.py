"""A verdict on one run of a case, with what was seen, and the errors that follow from verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torchreel.errors import ForbiddenError, UnsupportedError, UntrustedError
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

Verdict = Literal["same", "other", "none", "invalid", "unjudged"]
"""The verdict of an oracle on a case.

- same: it fails, with the signature that is looked for
- other: it fails with another signature
- none: it does not fail
- invalid: it is no program: eager (or fake propagation) rejects it, or it can't be rebuilt
- unjudged: nobody knows: killed for its time or memory, or the worker itself broke
"""


@dataclass(frozen=True)
class OracleReport:
    """A verdict with the observations of the run."""

    verdict: Verdict
    observed: Signature | None = None
    """The signature of the failure, for `same` and `other`."""
    detail: str = ""
    """The failure's message, or why the case is invalid or could not be judged."""
    stage: str = ""
    """The last stage that was entered."""
    seconds: float = 0.0
    values: Mapping[str, Json] = field(default_factory=dict)
    """Fresh descriptions of the values of call nodes, by name, of a case that fails."""
    lasting: bool = True
    """True if the same case would get the same verdict again: it may be kept."""
    note: str = ""
    """The application that was left out first, in a case that holds a part of the compiler back."""
    missing: tuple[str, ...] = ()
    """The parts of the recording that the run lacked: config entries, passes."""
    stack: frozenset[str] = frozenset()
    """The functions that were on the stack of a hang each time that it was looked at."""
    presumed: bool = False
    """True if it was presumed before the whole limit was over."""

    @property
    def refusal(self) -> str:
        """Return the reason why the case may not, or cannot, be built.

        Empty for any other verdict.
        """
        if self.verdict != "invalid" or self.stage != "decode":
            return ""
        kind, _, reason = self.detail.partition(": ")
        known = reason if kind in _REFUSALS else ""
        return known or f"The recorded graph can't be built here, so nothing was run: {self.detail}"


_REFUSALS = {kind.__name__ for kind in (UnsupportedError, UntrustedError, ForbiddenError)}


def raise_refusal(reports: Sequence[OracleReport]) -> None:
    """Raise `UnsupportedError` with the first reason when each of the cases was refused."""
    if reports and all(report.refusal for report in reports):
        raise UnsupportedError(reports[0].refusal)


def raise_missing(reports: Sequence[OracleReport], seen: Sequence[str] = ()) -> None:
    """Raise `UntrustedError` if a case did not fail, and ran without parts of the recorded compile.

    Such a run proves nothing: the failure may lie in the missing parts.  `seen` lists the outcomes,
    a line each.
    """
    for report in reports:
        if report.verdict in ("none", "other") and report.missing:
            what = "\n".join([" What happened:", *seen, ""]) if seen else " "
            raise UntrustedError(
                "The recorded compile had what this run was made without: "
                f"{', '.join(report.missing)}. So the run proves nothing.{what}"
                f"{_remedy(report.missing)}"
            )


def _remedy(missing: Sequence[str]) -> str:
    """Return the advice on missing parts; no import brings an operator of a program's main file."""
    operators = [what for what in missing if what.startswith("the operator ")]
    found = []
    if len(operators) < len(missing):
        found.append("Add --trust for config entries, or --import MODULE where a module sets them.")
    if operators:
        found.append(
            "Add --import MODULE for the module that defines an operator. One that the program's "
            "main file defines (__main__) is there with 'torchreel minify --trust', which goes on "
            "with that file, where it is still as it was recorded; else it has to be moved into a "
            "module of its own, and recorded again from there."
        )
    return " ".join(found)


def raise_forbidden(report: OracleReport) -> None:
    """Raise `ForbiddenError` for a case out of a store that nobody recorded."""
    if report.refusal and report.detail.startswith(ForbiddenError.__name__):
        raise ForbiddenError(report.refusal)

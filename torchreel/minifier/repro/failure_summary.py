"""The text of an export beside the code: where the failure comes from, and how it shrank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from torchreel.errors import UsageError
from torchreel.minifier.bisect.results import Bisection
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.storage.best_cases import best_case
from torchreel.minifier.storage.other_failures import StoredOtherFailure
from torchreel.releases.results import Survey
from torchreel.replay.imposed.facts import facts_of
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile, Failure, Reduction

# Of a recording's environment, what an issue says; the rest may be nobody's business.
_VERSIONS = ("torch", "python", "platform", "machine", "cpu", "cpu_count", "num_threads", "gxx")


@dataclass(frozen=True)
class FailureSummary:
    """A failure, as far as an export describes it."""

    signature: Signature
    frame: str = ""
    message: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    before: int = 0
    """Call nodes of the case that the reduction started with."""
    reduction: Reduction | None = None
    other_failures: tuple[Signature, ...] = ()
    explanation: Explanation | None = None
    bisection: Bisection | None = None
    releases: Survey | None = None
    """The results of the script under several releases of torch."""
    accelerator: Mapping[str, Json] | None = None
    """The facts of the recorded GPU."""

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions that the issue template calls for."""
        return {key: self.environment[key] for key in _VERSIONS if key in self.environment}

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that were recorded."""
        return {
            key.removeprefix("env:"): value
            for key, value in self.environment.items()
            if key.startswith("env:") and not value.startswith("<")
        }


def best_known(
    store: Store, compile: Compile, failure: Failure | None, options: MinifyOptions
) -> tuple[AnyCase, FailureSummary]:
    """Return the simplest case known of a failure (left out: of the compile's first), and a
    summary.

    Raises UsageError for a compile that did not fail and `UnsupportedError` for a failure without a
    graph.
    """
    failure = failure or queries.failure_of(store, compile)
    if failure is None:
        raise UsageError(
            f"{queries.without_failure(store, compile)}, so there is no repro. If one computes "
            "something wrong, run 'torchreel minify --accuracy' first."
        )
    best = best_case(store, failure, options.imports)
    if best is None:
        case = starting_cases(store, compile, failure, options)[0]
        return case, _story(store, compile, failure, case.call_nodes, None)
    return best.case, _story(store, compile, failure, best.before, best.reduction)


def summary_of_other_failure(store: Store, found: StoredOtherFailure) -> FailureSummary:
    """Return the summary of another failure that a reduction met."""
    row = found.owner
    name = f"{row.frame_name} in {PurePath(row.frame_file).name}:{row.frame_line}"
    return FailureSummary(
        signature=found.row.signature,
        frame=name if row.frame_name else "",
        environment=queries.environment(store, row.recording_id),
        before=found.case.call_nodes,
        accelerator=facts_of(store, row).accelerator,
    )


def _story(
    store: Store, compile: Compile, failure: Failure, before: int, reduction: Reduction | None
) -> FailureSummary:
    caught = queries.by_catch(store, reduction) if reduction is not None else []
    name = f"{compile.frame_name} in {PurePath(compile.frame_file).name}:{compile.frame_line}"
    return FailureSummary(
        signature=failure.signature,
        frame=name if compile.frame_name else "",
        message=failure.message,
        environment=queries.environment(store, compile.recording_id),
        before=before,
        reduction=reduction,
        other_failures=tuple(item.signature for item in caught),
        accelerator=facts_of(store, compile).accelerator,
    )

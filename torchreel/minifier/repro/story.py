"""The text of an export beside the code: where the failure comes from, and how it shrank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from torchreel.errors import UsageError
from torchreel.minifier.bisect.results import Bisection
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.side_effects import base_name
from torchreel.minifier.cases.source_case import SourceCase
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


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{,60}")
_FUNCTION = re.compile(r"(?:torch|F)(?:\.[A-Za-z_][A-Za-z0-9_]{,60}){1,5}")
_MOST_NAMES = 4
"""A title names as many operators as it calls, if they are no more than these."""


def title(signature: Signature, case: AnyCase | None = None) -> str:
    """Return a failure in one line, as the title of an issue; `case` shows what is compiled."""
    where = f"in stage {signature.stage}" + (
        f" ({signature.partition})" if signature.partition else ""
    )
    match signature.failure_class:
        case "crash":
            return f"{signature.signal or 'crash'} {where}"
        case "hang":
            return f"torch.compile hangs {where}"
        case "memory":
            return f"torch.compile runs out of memory {where}"
        case "predicate":
            return f"torch.compile: {signature.message}"
        case "script":
            return f"torch.compile: what '{signature.message}' looks for"
        case "wrong_result" if isinstance(case, SourceCase) and not case.ends_with_dynamo:
            what = f"A program does something else when it is compiled ({signature.message})"
            return what + _calls(case)
        case "wrong_result" if signature.stage == "dynamo":
            return (
                f"Dynamo traces a program into one that does something else ({signature.message})"
                f"{_calls(case)}"
            )
        case "wrong_result":
            return f"torch.compile computes a wrong result ({signature.message}){_calls(case)}"
    message = signature.message.partition("\n")[0]
    return f"{'/'.join(signature.exception_types)} {where}: {message}".rstrip(": ")


def _calls(case: AnyCase | None) -> str:
    """Return what a small case calls, which is what one searches for; '' for a larger one.

    A name of a store is text, and is left out where it could be more than a name.
    """
    if isinstance(case, SourceCase):
        names, form = dict.fromkeys(_functions_of_torch(case.tree)), _FUNCTION
    elif isinstance(case, Case):
        names = dict.fromkeys(base_name(node) for node in case.graph.nodes if node.is_call)
        form = _NAME
    else:
        return ""
    if not 0 < len(names) <= _MOST_NAMES or not all(map(form.fullmatch, names)):
        return ""
    return f": {', '.join(names)}"


def _functions_of_torch(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of torch that a program calls; not those that make or compare inputs."""
    for node in ast.walk(tree):
        name = _dotted(node.func) if isinstance(node, ast.Call) else ""
        first, _, rest = name.partition(".")
        if first in ("torch", "F") and rest and not _IS_AROUND.match(rest):
            yield name


def _dotted(node: ast.expr) -> str:
    """Return a name with its attributes; '' for an attribute of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


_IS_AROUND = re.compile(
    r"(?:compile|manual_seed|set_\w+|no_grad|tensor|as_tensor|from_numpy|zeros|ones|full|empty|eye"
    r"|arange|linspace|rand\w*)$|(?:compiler|testing|_dynamo|_inductor|_functorch|library)\."
)
"""Functions of torch around what is compiled."""


def headline(signature: Signature, message: str, case: AnyCase | None = None) -> str:
    """Return the title with the message of an exception as it was raised, where that says more."""
    telling = signature.failure_class == "exception" and message
    if not telling or signature.exception_types == ("CppCompileError",):
        return title(signature, case)
    return f"{message} (stage {signature.stage})"


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

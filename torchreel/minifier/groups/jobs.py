"""The reduction of one group of failures: a job that any machine carries out alike.

A job and its result are plain values, which can be sent. What makes the result is in the store: the
verdicts, the cases, how far the search came. So a job that ended half-way is simply run again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from torchreel.errors import DamagedStore, StoreError, TorchreelError, UntrustedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import FORMATS, ExportOptions, export
from torchreel.minifier.results.reductions import Listener
from torchreel.minifier.storage.best_cases import best_case
from torchreel.store import Store, parse, queries
from torchreel.store.records import Compile

State = Literal["reduced", "known", "budget", "interrupted", "refused"]


@dataclass(frozen=True)
class GroupJob:
    """One group: which failures to try, and how."""

    places: tuple[str, ...]
    """Addresses in the store, without its name, as in '17/0/0': the next one is tried where none
    before it could be reduced."""
    options: MinifyOptions
    checks: int = 3
    """The number of runs of the exported script."""
    is_reduced: bool = False
    """True if the reduction of the first place is in the store already: it is exported alone."""


@dataclass(frozen=True)
class GroupResult:
    """The result of a job."""

    state: State
    place: str
    """The failure that was reduced, or the last one that was tried."""
    before: int = 0
    after: int = 0
    unit: str = "call node"
    runs: int = 0
    seconds: float = 0.0
    texts: Mapping[str, str] = field(default_factory=dict)
    """The exported files, by their format (`repro.FORMATS`)."""
    is_verified: bool = False
    """True if the exported script shows the failure."""
    detail: str = ""
    """The error of the script, or the reason why there is none."""


Say = Callable[[str], None]


def reduce_group(
    store: Store, job: GroupJob, listener: Listener | None = None, say: Say = lambda text: None
) -> GroupResult:
    """Reduce the first failure of a group that can be reduced, and export it.

    Raises StoreError where the store can't be used at all.
    """
    reasons: list[str] = []
    for number, place in enumerate(job.places, 1):
        try:
            return _reduced(store, place, job, listener, say)
        except TorchreelError as error:
            if isinstance(error, StoreError) and not isinstance(error, DamagedStore):
                raise
            reasons.append(str(error))
            if isinstance(error, UntrustedError):  # what runs code does so of each of them
                break
            if number < len(job.places):
                say(f"{place}: {error}")
    return GroupResult("refused", place, detail=" ".join(dict.fromkeys(reasons)))


def _reduced(
    store: Store, place: str, job: GroupJob, listener: Listener | None, say: Say
) -> GroupResult:
    compile = queries.compile_at(store, parse(f"{store.target}#{place}"))
    if job.is_reduced:
        return _exported(store, compile, GroupResult("known", place), None, job, say)
    found = minify(store, compile, options=job.options, listener=listener)
    result = GroupResult(
        "reduced" if found.status == "fixpoint" else found.status,
        place,
        found.before_call_nodes,
        found.after_call_nodes,
        found.case.unit,
        found.oracle_runs,
        found.seconds,
    )
    if found.status == "interrupted":
        return result
    best = found.case if isinstance(found.case, Case) else None
    return _exported(store, compile, result, best, job, say)


def _exported(
    store: Store,
    compile: Compile,
    result: GroupResult,
    best: AnyCase | None,
    job: GroupJob,
    say: Say,
) -> GroupResult:
    """Add the files of an export to a result."""
    with tempfile.TemporaryDirectory(prefix="torchreel-") as folder:
        options = ExportOptions(
            Path(folder),
            force=True,
            imports=job.options.imports,
            checks=job.checks,
            trust=job.options.trust,
            hang_after=job.options.bounds.seconds,
            say=say,
        )
        exported = export(store, compile, options, best=best)
        names = {name: Path(folder, file) for name, file in FORMATS.items()}
        texts = {name: path.read_text("utf-8") for name, path in names.items() if path.exists()}
    failure = queries.failure_of(store, compile)
    known = None if failure is None else best_case(store, failure, job.options.imports)
    if result.state == "known" and known is not None:
        sizes = {"before": known.before, "after": known.case.call_nodes, "unit": known.case.unit}
        result = replace(result, **sizes)  # type: ignore[arg-type]
    return replace(
        result, texts=texts, is_verified=exported.check.holds, detail=exported.check.detail
    )

"""Wrong results: no exception tells of them, so every recorded graph is run twice and compared.

Each `graph` checkpoint is run in eager mode and compiled, on the same invented inputs (on positive
ones, where eager makes nothing but NaN of the others); the first
whose results differ (outputs, inputs that it wrote to, gradients) is written down as a failure of
its compile and reduced like any other. Called by `minify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchreel.errors import NotReproduced, UnsupportedError
from torchreel.minifier.case import Case
from torchreel.minifier.descriptions import as_object, is_tensor
from torchreel.minifier.events import Report
from torchreel.minifier.judge import Oracle
from torchreel.minifier.written import written_down
from torchreel.replay.comparators import DEFAULT, tolerances
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.portable.checkpoints import CheckpointDoc
from torchreel.store.records import Checkpoint, Compile, Failure


def find_difference(
    store: Store,
    compile: Compile | None,
    imports: tuple[str, ...],
    oracle: Oracle,
    comparator: str = DEFAULT,
) -> tuple[Case, Failure]:
    """The first recorded graph that computes something else when it is compiled.

    `compile` restricts the search to its graphs. Raises `NotReproduced` when all agree, with what
    could not be compared, and `UnsupportedError` when there is no graph at all.
    """
    tolerances(comparator)  # which raises what it has against a comparator
    seen: list[str] = []
    for owner, row in _graphs(store, compile):
        doc = CheckpointDoc.from_bytes(store.read_blob(row.digest))
        case = Case.from_checkpoint(doc, "accuracy", imports=imports)
        case = replace(case, comparator=comparator)
        report = oracle.judge(case)
        if report.verdict == "invalid":
            # Of invented numbers a square root or a logarithm often makes nothing but NaN.
            case = with_positive_inputs(case)
            report = oracle.judge(case)
        if report.observed is not None and report.observed.failure_class == "wrong_result":
            return case, written_down(store, owner, report.observed, report.detail, row.id)
        seen.append(f"  {owner.place}: {_told(report)}")
    if not seen:
        raise UnsupportedError("The store has no graph that could be run: nothing to compare.")
    raise NotReproduced(
        "No recorded graph computes anything else when it is compiled:\n" + "\n".join(seen)
    )


def with_positive_inputs(case: Case) -> Case:
    """The case with no negative number in its inputs."""
    inputs = tuple(
        {**as_object(value), "contents": "positive"} if is_tensor(value) else value
        for value in case.checkpoint.inputs
    )
    return case.with_graph(case.graph, inputs)


def _told(report: Report) -> str:
    return "same results" if report.verdict == "none" else f"not compared: {report.detail}"


def _graphs(store: Store, only: Compile | None) -> Iterator[tuple[Compile, Checkpoint]]:
    """The recorded graphs, in the order in which they were compiled."""
    owners = (
        [only]
        if only is not None
        else [
            owner
            for recording in queries.recordings(store)
            if recording.kind != "replay"
            for owner in queries.compiles(store, recording.id)
        ]
    )
    for owner in owners:
        for row in queries.checkpoints(store, owner):
            if row.entry == "graph":
                yield owner, row

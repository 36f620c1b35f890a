"""Looking for wrong results: recorded graphs and frames, run in eager mode and compiled.

Each `graph` checkpoint is run twice, on the same invented inputs (on positive ones as well, where
eager computes NaN of the others). The first whose results differ (outputs, inputs that it wrote to,
gradients) becomes a failure of its compile. Where all agree, Dynamo may be wrong: each frame, as a
program (from a pickle, which needs trust), is run in eager mode and under Dynamo alone, and what
both leave behind is compared. Called by `initial_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchreel.errors import NotReproduced, UnsupportedError
from torchreel.minifier.accuracy.inputs import is_wrong, with_telling_inputs
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.source_case import ANYTHING, OBSERVES, SourceCase
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.results.reductions import Listener, looking
from torchreel.minifier.results.verdicts import (
    OracleReport,
    raise_forbidden,
    raise_missing,
    raise_refusal,
)
from torchreel.minifier.scripts.sharing import KIND
from torchreel.minifier.source.frame_programs import programs
from torchreel.minifier.source.passes.settings import SimplerCall
from torchreel.minifier.source.recorded_program import observed_program
from torchreel.minifier.storage.added_failures import add_failure
from torchreel.replay.accuracy import comparators
from torchreel.replay.accuracy.comparators import BY_UP_TO
from torchreel.replay.imposed.documents import document
from torchreel.store import queries
from torchreel.store.addressing import UNNAMED
from torchreel.store.database import Store
from torchreel.store.records import Checkpoint, Compile, Failure

ONE_CALL = (
    "Each was called once: what shows only in a later call (a guard that should have failed) is "
    "not seen."
)
"""The limit of every verdict on a recorded graph."""
_OF_OTHER_PROCESSES = (
    "Caches of compiled code begin empty: a wrong result that comes from what another process left "
    "there is not seen."
)
_ROUNDING = (
    "; no graph differs by more than rounding explains, so it may be rounding that the program "
    "enlarges"
)


def find_difference(
    store: Store,
    compile: Compile | None,
    imports: tuple[str, ...],
    oracle: Oracle,
    comparator: str = comparators.DEFAULT,
    listener: Listener | None = None,
) -> tuple[Case, Failure]:
    """Return the first recorded graph whose compiled results differ from eager's.

    A graph whose results only share other memory, or are one object, comes after those with other
    values: that matters to few. `compile` restricts the search to its graphs; `listener` gets a
    report on each. Raises `NotReproduced` when all agree, with a list of things that could not be
    compared, and `UnsupportedError` when there is no graph at all.
    """
    comparators.comparator(comparator)  # which raises what it has against a comparator
    seen: list[str] = []
    reports: list[OracleReport] = []
    shared: tuple[Case, Compile, Checkpoint, OracleReport] | None = None
    graphs = list(recorded_graphs(store, compile))
    for number, (owner, row) in enumerate(graphs, 1):
        _notify(listener, f"graph {number} of {len(graphs)}", owner)
        doc = document(store, owner, row)
        case = Case.from_checkpoint(doc, "accuracy", imports=imports)
        case = replace(case, comparator=comparator)
        case, report = with_telling_inputs(case, oracle.judge)
        if is_wrong(report) and report.observed is not None:
            if report.observed.message != KIND:
                return case, add_failure(store, owner, report.observed, report.detail, row.id)
            shared = shared or (case, owner, row, report)
        raise_forbidden(report)
        reports.append(report)
        seen.append(f"  {owner.place}: {_in_words(report)}")
    if shared is not None and shared[3].observed is not None:
        case, owner, row, report = shared
        return case, add_failure(store, owner, shared[3].observed, report.detail, row.id)
    if not seen:
        raise UnsupportedError("The store has no graph that could be run: nothing to compare.")
    raise_refusal(reports)
    raise_missing(reports, seen)
    raise NotReproduced(
        _none_differs(seen, "graph", "computes anything else when it is compiled")
        + "\n".join([*seen, ONE_CALL])
    )


def find_in_frames(
    store: Store,
    compile: Compile | None,
    options: MinifyOptions,
    oracle: Oracle,
    listener: Listener | None = None,
) -> tuple[SourceCase, Failure]:
    """Return the first recorded frame that leaves something else behind when Dynamo has traced it.

    `listener` hears of each. Raises `NotReproduced` when all agree, and `UnsupportedError` when
    no frame was kept.
    """
    seen: list[str] = []
    owners = _with_frames(store, compile)
    for number, (owner, holder) in enumerate(owners, 1):
        _notify(listener, f"frame {number} of {len(owners)}", owner)
        try:
            cases = wrong_programs(store, holder, options)
        except UnsupportedError as error:
            seen.append(f"  {owner.place} ({owner.frame_name}): not compared: {error}")
            continue
        for case in cases:
            report = oracle.judge(case)
            if is_wrong(report) and report.observed is not None:
                case = replace(case, observes=str(report.values[OBSERVES]))
                return case, add_failure(store, owner, report.observed, report.detail)
            seen.append(f"  {owner.place} ({owner.frame_name}): {_in_words(report)}")
    if not seen:
        raise UnsupportedError("The store has no frame: record with --frames all to compare them.")
    raise NotReproduced(
        _none_differs(seen, "frame", "leaves anything else behind under Dynamo")
        + "\n".join(dict.fromkeys(seen))
    )


def find_in_program(
    store: Store,
    compile: Compile | None,
    options: MinifyOptions,
    oracle: Oracle,
    listener: Listener | None = None,
) -> tuple[SourceCase, Failure]:
    """Return the recorded program itself, if it does something else when it compiles.

    That shows what only a later call does, or a backward outside of the graph. A program that
    computes something else may raise for it, between its graphs: the case is then that it does.
    Raises `NotReproduced` when it does the same, and `UnsupportedError` where it is not to be had.
    """
    owner = next(iter(_owners(store, compile)), None)
    if owner is None:
        raise UnsupportedError("The store has no compile, so no program either.")
    if listener is not None:
        listener.on_step(looking("comparing eager and compiled: the recorded program itself"))
    try:
        cases = observed_program(store, owner, options)
    except UnsupportedError as error:
        raise UnsupportedError(f"The program itself was not compared: {error}.") from error
    seen = []
    raising: list[tuple[SourceCase, OracleReport]] = []
    for case in cases:
        report = oracle.judge(case)
        if is_wrong(report) and report.observed is not None:
            case, detail = replace(case, observes=str(report.values[OBSERVES])), report.detail
            if listener is not None:
                listener.on_step(looking(f"{case.summary} differs: {with_doubt(detail)}"))
            return case, add_failure(store, owner, report.observed, with_doubt(detail))
        if report.observed is not None and report.observed.failure_class == "exception":
            raising.append((replace(case, observes=""), report))
        seen.append(f"  {case.summary}: {_in_words(report)}")
    for case, report in raising:
        assert report.observed is not None, "it was kept for that"
        return case, add_failure(store, owner, report.observed, report.detail)
    first = "does nothing else when it is compiled" if _is_any_compared(seen) else _COULD_NOT
    lines = [f"The recorded program {first}:", *dict.fromkeys(seen), _OF_OTHER_PROCESSES]
    raise NotReproduced("\n".join(lines))


def with_doubt(detail: str) -> str:
    """Append to `detail` a note that rounding may be the cause, if numbers differ.

    The size of rounding errors is known only for a graph, which is also computed in float64.
    """
    return f"{detail}{_ROUNDING}" if BY_UP_TO in detail else detail


def _notify(listener: Listener | None, what: str, owner: Compile) -> None:
    if listener is not None:
        where = f"{owner.place} ({owner.frame_name})" if owner.frame_name else owner.place
        listener.on_step(looking(f"comparing eager and compiled: {what}, {where}"))


def wrong_programs(store: Store, compile: Compile, options: MinifyOptions) -> list[SourceCase]:
    """Return the programs of recorded frames, set up to run in eager mode and under Dynamo."""
    found = []
    for case in programs(store, compile, options):
        with_dynamo_alone = SimplerCall().apply(case, SimplerCall().edits(case)) or case
        found.append(replace(with_dynamo_alone, eager=True, observes=ANYTHING))
    return list(dict.fromkeys(found))


def _none_differs(seen: Sequence[str], what: str, differs: str) -> str:
    """Return the line before those of what was `seen`: none differs, or none could be compared."""
    return f"No recorded {what} {differs if _is_any_compared(seen) else _NOT_COMPARED}:\n"


def _is_any_compared(seen: Sequence[str]) -> bool:
    return any(f": {_SAME}" in line for line in seen)


_SAME = "same results"
_NOT_COMPARED = "could be compared with eager mode"
_COULD_NOT = "could not be compared with eager mode"


def _in_words(report: OracleReport) -> str:
    if report.verdict == "none":
        return f"{_SAME}; {report.detail}" if report.detail else _SAME
    return f"not compared: {report.detail}"


def recorded_graphs(store: Store, only: Compile | None) -> Iterator[tuple[Compile, Checkpoint]]:
    """Yield the recorded graphs, in the order in which they were compiled."""
    for owner in _owners(store, only):
        for row in queries.checkpoints(store, owner):
            if row.entry == "graph":
                yield owner, row


def _with_frames(store: Store, only: Compile | None) -> list[tuple[Compile, Compile]]:
    """Return compiles whose frame was kept, with the attempt that has it.

    Where all frames are kept, that is the first one: a graph break begins another.
    """
    holders: dict[tuple[object, ...], Compile] = {}
    found: list[tuple[Compile, Compile]] = []
    owners = _owners(store, only)
    for recording_id in dict.fromkeys(owner.recording_id for owner in owners):
        for row in queries.compiles(store, recording_id):
            if queries.has_frame(store, row):
                holders.setdefault(_frame_of(row), row)
    for owner in owners:
        holder = holders.get(_frame_of(owner))
        if owner.status != "restarted" and holder is not None:
            found.append((owner, holder))
    return found


def _frame_of(row: Compile) -> tuple[object, ...]:
    """Return what the attempts at one frame have in common; those without a name have nothing."""
    attempt = row.attempt if row.compile_id == UNNAMED else None
    return row.recording_id, row.generation, row.compile_id, attempt


def _owners(store: Store, only: Compile | None) -> Sequence[Compile]:
    """Return the compile, or all that programs made, in their order."""
    if only is not None:
        return [only]
    return [
        owner
        for recording in queries.programs(store)
        for owner in queries.compiles(store, recording.id)
    ]

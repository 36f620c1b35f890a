"""From a recorded failure to the simplest case of it: the one function that the command line calls.

Lives here: which checkpoint, harness and signature a reduction starts with, and what is refused.
Not here: the search itself (`search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torchreel.errors import NotReproduced, StoreError, UnsupportedError, UsageError
from torchreel.minifier.accuracy.wrong_results import (
    find_difference,
    find_in_frames,
)
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.explain.asking import explain
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.options import MinifyOptions, RunLimits
from torchreel.minifier.oracle.command_oracle import CommandOracle
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle, open_oracle
from torchreel.minifier.results.reductions import Listener, MinifyResult
from torchreel.minifier.scripts.forms import candidate_script
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.search.partitions import is_worth, part_of
from torchreel.minifier.search.phases import phases_of
from torchreel.minifier.search.search import Search
from torchreel.minifier.starts.failures import starting_cases
from torchreel.minifier.starts.interestingness import (
    interestingness_cases,
    interestingness_failure,
    interestingness_signature,
    options_to_repeat,
)
from torchreel.minifier.starts.signatures import NEEDS_FRAME, below_dynamo, is_alike
from torchreel.minifier.storage.added_failures import add_failure
from torchreel.minifier.storage.findings import keep_finding, latest_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.minifier.storage.other_failures import find_other_failure
from torchreel.replay.facts import facts_of
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.hang_limit import recorded_limit
from torchreel.store.jsontypes import Json
from torchreel.store.records import Compile, Failure
from torchreel.store.signature import ASKED, Signature, wrong_result_signature

_DEFAULTS = MinifyOptions()


def minify(
    store: Store,
    compile: Compile | None = None,
    *,
    accuracy: bool = False,
    options: MinifyOptions = _DEFAULTS,
    listener: Listener | None = None,
    oracle: WorkerOracle | None = None,
) -> MinifyResult:
    """Reduce the failure of a compile (left out: of the latest failing one).

    `store` has to be open for writing: verdicts and the best case so far are kept in it, so that
    the same call goes on where it stopped. With `accuracy`, no failure is needed: each recorded
    graph is run in eager mode and compiled, and the first that differs is reduced. An `oracle` that
    is given stays open: one warm worker then serves several reductions.

    Raises `UnsupportedError` for a failure without a graph, `NotReproduced`, `FlakyFailure` and
    `TrivialResult` as `Search.run` does. A budget that ran out and an interrupt are no exceptions
    here: see `MinifyResult.status`. With a predicate or a command in the options no failure is
    needed either: the compile (the latest, if none is given) is reduced as long as that holds.
    """
    if accuracy:
        with open_oracle(oracle, wrong_result_signature("values"), options) as worker:
            case, found = _wrong_result(store, compile, options, worker, listener)
            reduction = _reduce(store, worker, [case], found, options, listener)
            return _explained(store, worker, reduction, options)
    if options.other_failure is not None:
        return _reduce_other_failure(store, options.other_failure, options, listener, oracle)
    wanted = interestingness_signature(options)
    if wanted is not None:
        compile = compile or queries.compile_at(store, Address(store.target))
        asked = interestingness_failure(store, compile, wanted)
        return _reduce_asked(store, compile, asked, options, listener, oracle)
    compile = compile or queries.latest_failing(store)
    if compile is None:
        raise UsageError(f"{store.target} has no failing compile: there is nothing to minify.")
    failure = queries.failure_of(store, compile)
    if failure is None:
        raise UsageError(
            f"The compile {compile.place} did not fail. If it computed something wrong, use "
            "--accuracy."
        )
    if failure.failure_class in ASKED:
        options = options_to_repeat(failure, options)
        return _reduce_asked(store, compile, failure, options, listener, oracle)
    if failure.failure_class == "wrong_result" and failure.stage in NEEDS_FRAME:
        with open_oracle(oracle, failure.signature, options) as worker:
            case, found = find_in_frames(store, compile, options, worker, listener)
            return _reduce(store, worker, [case], found, options, listener)
    starts = starting_cases(store, compile, failure, options)
    options = replace(options, bounds=_bounds_for(failure, options.bounds))
    machine = facts_of(store, compile).accelerator
    with open_oracle(oracle, failure.signature, options, machine) as worker:
        reduction = _reduce(store, worker, starts, failure, options, listener)
        return _explained(store, worker, reduction, options)


def _wrong_result(
    store: Store,
    compile: Compile | None,
    options: MinifyOptions,
    oracle: WorkerOracle,
    listener: Listener | None,
) -> tuple[AnyCase, Failure]:
    """A case of a graph that is compiled wrongly; else of a frame that Dynamo traces wrongly."""
    try:
        return find_difference(
            store, compile, options.imports, oracle, options.comparator, listener
        )
    except (NotReproduced, UnsupportedError) as error:
        if not options.trust:
            raise type(error)(
                f"{error}\nWhat Dynamo itself makes of a frame (its Python state among it) was not "
                "compared: record with --frames all, and add --trust, which runs the frames."
            ) from error
        try:
            return find_in_frames(store, compile, options, oracle, listener)
        except (NotReproduced, UnsupportedError) as other:
            raise type(other)(f"{error}\n{other}") from other


def _explained(
    store: Store, oracle: WorkerOracle, reduction: MinifyResult, options: MinifyOptions
) -> MinifyResult:
    """With what there is to say of the smallest case; an interrupt leaves that out."""
    case = reduction.case
    if not options.explain or reduction.status != "fixpoint" or not isinstance(case, Case):
        return reduction
    with suppress(KeyboardInterrupt):
        found = explain(store, oracle, case, reduction.signature)
        return replace(reduction, explanation=found)
    return reduction


def _reduce_other_failure(
    store: Store,
    number: int,
    options: MinifyOptions,
    listener: Listener | None,
    oracle: WorkerOracle | None,
) -> MinifyResult:
    """Reduce another failure that a reduction met, as a failure of the same compile."""
    found = find_other_failure(store, number, trust=options.trust)
    wanted = found.row.signature
    failure = add_failure(store, found.owner, wanted, "met while another failure was reduced")
    start = found.case.with_imports(options.imports)
    with open_oracle(oracle, wanted, options) as worker:
        reduction = _reduce(store, worker, [start], failure, options, listener)
        return _explained(store, worker, reduction, options)


def _reduce_asked(
    store: Store,
    compile: Compile,
    failure: Failure,
    options: MinifyOptions,
    listener: Listener | None,
    oracle: WorkerOracle | None,
) -> MinifyResult:
    """Reduce what a predicate or a command finds interesting."""
    wanted = failure.signature
    starts = interestingness_cases(store, compile, wanted, options.imports)
    with open_oracle(oracle, wanted, options) as worker:
        if not options.command:
            reduction = _reduce(store, worker, starts, failure, options, listener)
            return _explained(store, worker, reduction, options)
        script_oracle = CommandOracle(
            worker, options.command, wanted, candidate_script, options.bounds
        )
        with script_oracle as judge:
            return _reduce(store, judge, starts, failure, options, listener)


def _bounds_for(failure: Failure, bounds: RunLimits) -> RunLimits:
    """A hang is recognised after the time in which the recording recognised it."""
    if failure.failure_class != "hang" or bounds.seconds is not None:
        return bounds
    return replace(bounds, seconds=recorded_limit(failure.message))


def _reduce(
    store: Store,
    oracle: WorkerOracle | CommandOracle,
    starts: Sequence[AnyCase],
    failure: Failure,
    options: MinifyOptions,
    listener: Listener | None,
) -> MinifyResult:
    """Search from the first of the cases that fails with the signature, or with one like it."""

    def search(wanted: Signature) -> Search:
        oracle.look_for(wanted)
        journal = StoreJournal(store, wanted, oracle.environment, failure.id)
        return Search(
            _for_hangs(oracle, wanted),
            wanted,
            journal=journal,
            limits=options.limits,
            listener=listener,
            phases=phases_of(starts[0]),
        )

    recorded_parts = [c for c in starts if isinstance(c, Case) and c.is_part and not c.is_exact]

    def parts(best: AnyCase, judge: CachedOracle) -> Sequence[AnyCase]:
        """The one of the case that is left, which is small, before those that were recorded."""
        if not recorded_parts or not isinstance(best, Case) or not isinstance(oracle, WorkerOracle):
            return recorded_parts
        part = _lowered(store, oracle, best, judge)
        if part is None:
            return recorded_parts
        return [part, *recorded_parts] if is_worth(part, best) else []

    wanted = failure.signature
    recorded = wanted if starts[0].is_code else below_dynamo(wanted)
    exact = (c for c in starts if isinstance(c, Case) and c.is_part and c.is_exact)
    lowered = next((case.graph for case in exact), None)
    run = partial(Search.run, parts=parts, lowered=lowered)
    first = search(recorded)
    try:
        # What an earlier reduction found out about the starts needs no run to be seen.
        if _alike(first, starts, recorded) is None:
            return run(first, *starts, is_alike=lambda seen: is_alike(seen, recorded))
    except NotReproduced:
        if any(seen.matches(recorded) for seen in first.judge.observed(starts)):
            return run(first, *starts)  # an earlier reduction saw it, further on
        if _alike(first, starts, recorded) is None:
            raise
    return run(search(_alike(first, starts, recorded) or recorded), *starts)


def _for_hangs(oracle: WorkerOracle | CommandOracle, wanted: Signature) -> Oracle:
    """The oracle to search with: one that presumes hangs where a hang is looked for."""
    if wanted.failure_class != "hang" or not isinstance(oracle, WorkerOracle):
        return oracle
    return HangOracle(oracle, oracle.seconds)


def _lowered(store: Store, oracle: WorkerOracle, case: Case, judge: CachedOracle) -> Case | None:
    """What Inductor gets of a case, as far as an earlier reduction has not found it out."""
    found = latest_finding(store, "part", case, oracle.environment)
    if isinstance(found, Mapping) and "document" in found:
        with suppress(UnsupportedError):  # of a stranger's finding
            return part_of(case, found["document"])
    judge.count()
    document = oracle.part_of(case)
    with suppress(StoreError):  # of a full disk there is a note already
        kept: Json = {"document": document}
        keep_finding(store, "part", case, oracle.signature, oracle.environment, kept)
    return part_of(case, document)


def _alike(search: Search, starts: Sequence[AnyCase], recorded: Signature) -> Signature | None:
    """The signature of a start that failed in the recorded way but for details."""
    observed = search.judge.observed(starts)
    if any(seen.matches(recorded) for seen in observed):
        return None
    return next((seen for seen in observed if is_alike(seen, recorded)), None)

"""From a recorded failure to the simplest case of it: the one function that the command line calls.

Lives here: which checkpoint, harness and signature a reduction starts with, and what is refused.
Not here: the search itself (`search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from torchreel.errors import NotReproduced, StoreError, UnsupportedError, UsageError
from torchreel.minifier.accuracy import (
    find_difference,
    find_in_frames,
    with_positive_inputs,
    wrong_programs,
)
from torchreel.minifier.asked import asked_again, asked_cases, asked_failure, asked_signature
from torchreel.minifier.cases.case import Case, Harness
from torchreel.minifier.cases.kinds import AnyCase
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.search.cached_oracle import Judge
from torchreel.minifier.options import Bounds, Options
from torchreel.minifier.oracle.command_oracle import ScriptOracle
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.search.partitions import is_worth, part_of
from torchreel.minifier.search.phases import phases_of
from torchreel.minifier.results.reductions import Listener, Reduction
from torchreel.minifier.scripts.forms import candidate_script
from torchreel.minifier.search.search import Search
from torchreel.minifier.source.start import programs
from torchreel.minifier.storage.added_failures import written_down
from torchreel.minifier.storage.findings import finding, keep_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.minifier.storage.other_failures import caught
from torchreel.replay.facts import facts_of
from torchreel.replay.frame_verdicts import export_around
from torchreel.replay.operators import document
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.hang_limit import recorded_limit
from torchreel.store.jsontypes import Json
from torchreel.store.portable.checkpoints import CheckpointDoc
from torchreel.store.records import Compile, Failure
from torchreel.store.signature import ASKED, Signature, telling_frames, wrong_result_signature

# Stages that belong to Dynamo: their input is a Python frame, not a graph.
NEEDS_FRAME = ("dynamo", "guards", "")
_RUNTIME_ASSERTS = frozenset({"op:aten._assert_scalar.default", "fn:torch._assert_scalar"})
_DYNAMO = ("torch._dynamo.output_graph:", "torch._dynamo.convert_frame:")
# Stages in which Inductor works on one partition alone.
_INDUCTOR = ("post_grad", "lowering", "codegen", "run", "forward", "backward")
_DEFAULTS = Options()


def minify(
    store: Store,
    compile: Compile | None = None,
    *,
    accuracy: bool = False,
    options: Options = _DEFAULTS,
    listener: Listener | None = None,
    oracle: WorkerOracle | None = None,
) -> Reduction:
    """Reduce the failure of a compile (left out: of the latest failing one).

    `store` has to be open for writing: verdicts and the best case so far are kept in it, so that
    the same call goes on where it stopped. With `accuracy`, no failure is needed: each recorded
    graph is run in eager mode and compiled, and the first that differs is reduced. An `oracle` that
    is given stays open: one warm worker then serves several reductions.

    Raises `UnsupportedError` for a failure without a graph, `NotReproduced`, `FlakyFailure` and
    `TrivialResult` as `Search.run` does. A budget that ran out and an interrupt are no exceptions
    here: see `Reduction.status`. With a predicate or a command in the options no failure is needed
    either: the compile is reduced as long as that holds (of the latest, where none is named).
    """
    if accuracy:
        with open_oracle(oracle, wrong_result_signature("values"), options) as worker:
            case, found = _wrong_result(store, compile, options, worker, listener)
            reduction = _reduce(store, worker, [case], found, options, listener)
            return _explained(store, worker, reduction, options)
    if options.by_catch is not None:
        return _reduce_by_catch(store, options.by_catch, options, listener, oracle)
    wanted = asked_signature(options)
    if wanted is not None:
        compile = compile or queries.compile_at(store, Address(store.target))
        asked = asked_failure(store, compile, wanted)
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
        options = asked_again(failure, options)
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
    options: Options,
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
    store: Store, oracle: WorkerOracle, reduction: Reduction, options: Options
) -> Reduction:
    """With what there is to say of the smallest case; an interrupt leaves that out."""
    case = reduction.case
    if not options.explain or reduction.status != "fixpoint" or not isinstance(case, Case):
        return reduction
    # which looks at exports, and these at us
    from torchreel.minifier.explain.asking import explain

    with suppress(KeyboardInterrupt):
        found = explain(store, oracle, case, reduction.signature)
        return replace(reduction, explanation=found)
    return reduction


def _reduce_by_catch(
    store: Store,
    number: int,
    options: Options,
    listener: Listener | None,
    oracle: WorkerOracle | None,
) -> Reduction:
    """Reduce another failure that a reduction met, as a failure of the same compile."""
    found = caught(store, number, trust=options.trust)
    wanted = found.row.signature
    failure = written_down(store, found.owner, wanted, "met while another failure was reduced")
    start = found.case.with_imports(options.imports)
    with open_oracle(oracle, wanted, options) as worker:
        reduction = _reduce(store, worker, [start], failure, options, listener)
        return _explained(store, worker, reduction, options)


def _reduce_asked(
    store: Store,
    compile: Compile,
    failure: Failure,
    options: Options,
    listener: Listener | None,
    oracle: WorkerOracle | None,
) -> Reduction:
    """Reduce what a predicate or a command finds interesting."""
    wanted = failure.signature
    starts = asked_cases(store, compile, wanted, options.imports)
    with open_oracle(oracle, wanted, options) as worker:
        if not options.command:
            reduction = _reduce(store, worker, starts, failure, options, listener)
            return _explained(store, worker, reduction, options)
        script_oracle = ScriptOracle(
            worker, options.command, wanted, candidate_script, options.bounds
        )
        with script_oracle as judge:
            return _reduce(store, judge, starts, failure, options, listener)


def _bounds_for(failure: Failure, bounds: Bounds) -> Bounds:
    """A hang is recognised after the time in which the recording recognised it."""
    if failure.failure_class != "hang" or bounds.seconds is not None:
        return bounds
    return replace(bounds, seconds=recorded_limit(failure.message))


def open_oracle(
    given: WorkerOracle | None,
    signature: Signature,
    options: Options,
    accelerator: Mapping[str, Json] | None = None,
) -> AbstractContextManager[WorkerOracle]:
    """The oracle to use, for the length of a `with`: the given one, or one of our own."""
    if given is not None:
        given.look_for(signature, options.bounds)
        return nullcontext(given)
    return WorkerOracle(
        signature,
        imports=options.imports,
        trust=options.trust,
        bounds=options.bounds,
        jobs=options.jobs,
        accelerator=accelerator,
    )


def _reduce(
    store: Store,
    oracle: WorkerOracle | ScriptOracle,
    starts: Sequence[AnyCase],
    failure: Failure,
    options: Options,
    listener: Listener | None,
) -> Reduction:
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

    def parts(best: AnyCase, judge: Judge) -> Sequence[AnyCase]:
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


def _for_hangs(oracle: WorkerOracle | ScriptOracle, wanted: Signature) -> Oracle:
    """The oracle to search with: one that presumes hangs where a hang is looked for."""
    if wanted.failure_class != "hang" or not isinstance(oracle, WorkerOracle):
        return oracle
    return HangOracle(oracle, oracle.seconds)


def _lowered(store: Store, oracle: WorkerOracle, case: Case, judge: Judge) -> Case | None:
    """What Inductor gets of a case, as far as an earlier reduction has not found it out."""
    found = finding(store, "part", case, oracle.environment)
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


def below_dynamo(signature: Signature) -> Signature:
    """A signature without frames of Dynamo's own, where the failure came after Dynamo.

    They stand at the innermost place when a backend of the user's raised: what called the backend
    is not there when a case is run without the program around it.
    """
    if signature.stage in NEEDS_FRAME:
        return signature
    frames = tuple(name for name in signature.frames if not name.startswith(_DYNAMO))
    return replace(signature, frames=frames)


def is_alike(seen: Signature, recorded: Signature) -> bool:
    """Whether a failure is the recorded one but for what a recording may not know exactly.

    A process that died may not have told its signal, and the stage of an exception is where the
    recorder stood, which a run without the program around it may name differently. One that was
    killed was killed for its memory, if that is what the case takes here. Of a failure that came
    right from a backend there is no frame of torch's but those of Dynamo around it, or those that
    pass a call on to it.
    """
    if recorded.is_kill and seen.failure_class == "memory":
        return seen.stage == recorded.stage
    return replace(
        seen,
        frames=telling_frames(seen.frames),
        stage=recorded.stage,
        partition=recorded.partition,
        signal=recorded.signal if recorded.signal is None else seen.signal,
    ).matches(replace(recorded, frames=telling_frames(recorded.frames)))


def starting_cases(
    store: Store, compile: Compile, failure: Failure, options: Options = _DEFAULTS
) -> Sequence[AnyCase]:
    """The cases to try in turn.

    Of a failure of Dynamo's own, programs made from its frame; of a call of torch.export, programs
    that make it; else from the graph, then from the
    partition; lean, then exact; without the judgement of eager mode, or, where results are compared
    with eager's, with positive inputs. Raises `UntrustedError` where that would run code of the
    store's without `Options.trust`.
    """
    imports = options.imports
    if failure.failure_class in ASKED:
        return asked_cases(store, compile, failure.signature, imports)
    exported = export_around(queries.compiles(store, compile.recording_id), compile)
    if exported is not None:
        return programs(store, exported, options)
    if failure.stage in NEEDS_FRAME:
        wrong = failure.failure_class == "wrong_result"
        return (wrong_programs if wrong else programs)(store, compile, options)
    docs = _documents(store, compile, failure)
    if not docs and queries.is_decomposition(store, compile):
        raise UnsupportedError(
            f"The compile {compile.place} is the decomposition of an exported program: it is "
            "replayed from there ('torchreel replay'), but not reduced yet."
        )
    if not docs:
        raise UnsupportedError(
            f"The compile {compile.place} has no checkpoint in the store, so there is no graph to "
            "reduce. 'torchreel show' says what was lost."
        )
    harness = harness_for(failure.signature)
    cases = [
        Case.from_checkpoint(doc, _allowed(harness, doc), imports=imports, lean=lean)
        for doc in docs
        for lean in (True, False)
    ]
    if harness == "accuracy":
        cases = [replace(case, comparator=options.comparator) for case in cases]
    return [one for case in cases for one in _ways(case)]


def _ways(case: Case) -> tuple[Case, ...]:
    """A case, and what to try where it does not fail."""
    last = replace(case, eager=False) if case.harness != "accuracy" else with_positive_inputs(case)
    return case, without_runtime_asserts(case), last


def without_runtime_asserts(case: Case) -> Case:
    """The case without the runtime asserts that Dynamo derived.

    Where Dynamo itself drew a wrong conclusion (a broadcast of an unbacked size), they make eager
    mode reject the graph, although it accepted the program. With them gone eager can judge again:
    without its judgement, a reduction slips to graphs that are nothing but a false assert.
    """
    graph = case.checkpoint.graph
    nodes = tuple(node for node in graph.nodes if node.target not in _RUNTIME_ASSERTS)
    return case.with_graph(replace(graph, nodes=nodes))


def harness_for(signature: Signature) -> Harness:
    """What has to be done with a case for a failure of this kind."""
    if signature.failure_class == "wrong_result":
        return "accuracy"
    if signature.partition == "backward":
        return "train"
    return "run" if signature.stage == "run" else "compile"


def _allowed(harness: Harness, doc: CheckpointDoc) -> Harness:
    """One partition alone can't be trained."""
    if doc.entry == "aot" and harness == "train":
        return "compile"
    return harness


def _documents(store: Store, compile: Compile, failure: Failure) -> list[CheckpointDoc]:
    """The recorded checkpoints from which the failure may be reached, the best first."""
    found = queries.checkpoints(store, compile)
    graphs = [row for row in found if row.entry == "graph"]
    parts = [row for row in found if row.entry == "aot" and row.partition == failure.partition]
    rows = graphs[-1:] + (parts[-1:] if failure.stage in _INDUCTOR else [])
    return [document(store, compile, row) for row in rows]

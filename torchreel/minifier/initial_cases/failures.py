"""The cases to reduce for a recorded failure: its graph, one partition, or programs of its frame.

Lives here: which checkpoint and which harness a reduction starts with, and what is refused. Not
here: whether a case fails (`search.reproduction`), how a program is made (`source`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from torchreel.errors import MinifyError, UnsupportedError, UntrustedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.accuracy.inputs import with_larger_integers, with_positive_inputs
from torchreel.minifier.accuracy.wrong_results import wrong_programs
from torchreel.minifier.cases.case import Case, Harness
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.initial_cases.interestingness import interestingness_cases
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.source.frame_programs import programs
from torchreel.replay.frame_verdicts import export_around
from torchreel.replay.imposed.documents import document
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import (
    ASKED,
    DOUBLE_BACKWARD,
    NEEDS_FRAME,
    REPEATED_BACKWARD,
    Signature,
)
from torchreel.store.records import Compile, Failure

_RUNTIME_ASSERTS = frozenset({"op:aten._assert_scalar.default", "fn:torch._assert_scalar"})
# Stages in which Inductor works on one partition alone.
_INDUCTOR = ("post_grad", "lowering", "codegen", "run", "forward", "backward")
_DEFAULTS = MinifyOptions()


def starting_cases(
    store: Store, compile: Compile, failure: Failure, options: MinifyOptions = _DEFAULTS
) -> Sequence[AnyCase]:
    """Return the cases to try in turn.

    Of a failure of Dynamo's own, programs made from its frame; of a call of torch.export, programs
    that make it; else from the graph, then from the partition; lean, then exact; without the
    judgement of eager mode, or, where results are compared with eager's, with positive inputs. With
    trust, programs come before a graph with bodies. Raises `UntrustedError` where that would run
    code of the store's without `MinifyOptions.trust`.
    """
    imports = options.imports
    if failure.failure_class in ASKED:
        return interestingness_cases(store, compile, failure.signature, imports)
    exported = export_around(queries.compiles(store, compile.recording_id), compile)
    if exported is not None:
        return programs(store, exported, options)
    if failure.stage in NEEDS_FRAME:
        wrong = failure.failure_class == "wrong_result"
        return (wrong_programs if wrong else programs)(store, compile, options)
    if failure.partition == DOUBLE_BACKWARD:
        raise UnsupportedError(
            f"The compile {compile.place} failed where its backward was to be differentiated "
            "again, which AOTAutograd refuses for every graph: no smaller one says more. Leave "
            "what needs second derivatives out of torch.compile, or use the backend 'eager'."
        )
    if failure.partition == REPEATED_BACKWARD:
        raise UnsupportedError(
            f"The compile {compile.place} failed where its backward was to keep its graph, which "
            "AOTAutograd refuses for every graph whose backward has donated buffers: no smaller "
            "one says more. Set torch._functorch.config.donated_buffer = False, or run the "
            "backward without retain_graph and create_graph."
        )
    docs = _documents(store, compile, failure)
    if not docs and queries.is_decomposition(store, compile):
        raise UnsupportedError(
            f"The compile {compile.place} is the decomposition of an exported program, which is "
            "not reduced by itself: with --trust, the program that exports it is."
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
    graphs = [one for case in cases for one in _ways(case)]
    return [*_programs_of_bodies(store, compile, failure, docs, options), *graphs]


def _programs_of_bodies(
    store: Store,
    compile: Compile,
    failure: Failure,
    docs: Sequence[CheckpointDoc],
    options: MinifyOptions,
) -> list[SourceCase]:
    """Return the programs of a frame whose graph calls a higher-order operator, if they may be run.

    What such a graph shrinks to can seldom be written as a program again, because Dynamo has rules
    of its own for bodies; and then a maintainer takes it for illegal.
    """
    has_bodies = any(doc.graph.modules for doc in docs)
    if not (has_bodies and options.trust and failure.failure_class == "exception"):
        return []
    if not queries.has_frame(store, compile):
        return []
    with suppress(UnsupportedError, MinifyError):
        return programs(store, compile, options)
    return []


def graphs_beside_program(
    store: Store, compile: Compile, failure: Failure, imports: tuple[str, ...] = ()
) -> list[Case]:
    """Return the graphs with bodies of a failure that was reduced as a program, for what needs a
    graph; [] where there is no such graph.
    """
    found: Sequence[AnyCase] = []
    with suppress(UnsupportedError, UntrustedError):
        found = starting_cases(store, compile, failure, MinifyOptions(imports=imports))
    return [case for case in found if isinstance(case, Case) and case.graph.modules]


def _ways(case: Case) -> tuple[Case, ...]:
    """Return a case, and what to try where it does not fail."""
    bare = without_runtime_asserts(case)
    if case.harness != "accuracy":
        return case, bare, replace(case, eager=False)
    larger = with_larger_integers(case)
    return case, bare, with_positive_inputs(case), *([] if larger is None else [larger])


def without_runtime_asserts(case: Case) -> Case:
    """Return the case without the runtime asserts that Dynamo derived.

    Where Dynamo itself drew a wrong conclusion (a broadcast of an unbacked size), they make eager
    mode reject the graph, although it accepted the program. With them gone eager can judge again:
    without its judgement, a reduction slips to graphs that are nothing but a false assert.
    """
    graph = case.checkpoint.graph
    nodes = tuple(node for node in graph.nodes if node.target not in _RUNTIME_ASSERTS)
    return case.with_graph(replace(graph, nodes=nodes))


def harness_for(signature: Signature) -> Harness:
    """Return the harness that shows a failure of this kind."""
    if signature.failure_class == "wrong_result":
        return "accuracy"
    if signature.partition == "backward":
        return "train"
    return "run" if signature.stage == "run" else "compile"


def _allowed(harness: Harness, doc: CheckpointDoc) -> Harness:
    """Return the harness that a checkpoint allows: one partition alone can't be trained."""
    if doc.entry == "aot" and harness == "train":
        return "compile"
    return harness


def _documents(store: Store, compile: Compile, failure: Failure) -> list[CheckpointDoc]:
    """Return the recorded checkpoints from which the failure may be reached, the best first."""
    found = queries.checkpoints(store, compile)
    graphs = [row for row in found if row.entry == "graph"]
    parts = [row for row in found if row.entry == "aot" and row.partition == failure.partition]
    rows = graphs[-1:] + (parts[-1:] if failure.stage in _INDUCTOR else [])
    return [document(store, compile, row) for row in rows]

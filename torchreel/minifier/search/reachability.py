"""Candidates that cannot get as far as the failure: these need no run to be refused.

AOTAutograd alone lowers nothing; a case that is only compiled does not run, nor compiles a
backward; a graph that returns its inputs does nothing at all. Called by the search for every
candidate. A wrong True costs a run, a wrong False a step.
"""

from __future__ import annotations

from torchreel.minifier.cases.case import BACKENDS, Case
from torchreel.minifier.cases.graph_edits import output_items, references
from torchreel.minifier.cases.order import is_plain
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import Signature

_INDUCTOR = ("post_grad", "lowering", "codegen")
# Measures, predicates and commands speak of a whole run: there, nothing is known beforehand.
_OF_A_WHOLE_RUN = ("memory", "predicate", "script")
_AT_ONCE = "force_non_lazy_backward_lowering"
_IN_A_STAGE = ("exception", "crash", "hang")


def can_reach(case: AnyCase, signature: Signature) -> bool:
    """Return True if a run of the case may get to the stage of the failure."""
    if not isinstance(case, Case) or signature.failure_class in _OF_A_WHOLE_RUN:
        return True
    if _only_returns(case):
        return False
    if signature.failure_class not in _IN_A_STAGE:
        return True
    in_backward = signature.partition == "backward" and signature.failure_class == "exception"
    if in_backward and not _compiles_backward(case):
        return False
    if signature.stage in _INDUCTOR:
        return case.backend not in BACKENDS[:-1]
    return not (signature.stage == "run" and case.harness == "compile")


def _compiles_backward(case: Case) -> bool:
    """Return True if a run may raise what compiling a backward raises.

    AOTAutograd compiles it when it is called for; before that only as a guess, whose exceptions it
    drops unless its config says otherwise.
    """
    lazy = not any(_AT_ONCE in str(entry) for entry in case.checkpoint.config)
    forward_only = case.harness in ("compile", "run") and not case.is_part
    return not (forward_only and lazy and case.backend in BACKENDS)


def _only_returns(case: Case) -> bool:
    """Return True if a case only returns inputs with no special properties, each once.

    So does the trivial one, which did not fail. One that returns something odd (a conjugate, what
    requires a gradient) may show a failure.
    """
    if case.graph.total_call_nodes:
        return False
    names = (node.name for node in case.graph.placeholders)
    described = dict(zip(names, case.checkpoint.inputs, strict=True))
    items = output_items(case.graph)
    returned = [name for item in items for name in references(item)]
    plain = all(name in described and _is_plain(described[name]) for name in returned)
    return plain and len(set(returned)) == len(returned)


def _is_plain(value: Json) -> bool:
    """Return True if an input is a dense float32 tensor of known sizes, with nothing special about
    it.
    """
    fields = as_object(value)
    return is_plain(value) and fields.get("dtype") == "float32" and fields.get("device") == "cpu"

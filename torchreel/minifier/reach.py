"""Whether a case gets as far as the failure at all: what needs no run to be refused.

AOTAutograd alone lowers nothing, what is only compiled does not run, and what returns its inputs
does nothing at all. Called by the search for every candidate; being wrong the cautious way (True)
costs a run, the other way a step.
"""

from __future__ import annotations

from torchreel.minifier.case import BACKENDS, Case
from torchreel.minifier.descriptions import as_object
from torchreel.minifier.draft import output_items, references
from torchreel.minifier.kinds import AnyCase
from torchreel.minifier.order import is_plain
from torchreel.store.jsontypes import Json
from torchreel.store.signature import Signature

_INDUCTOR = ("post_grad", "lowering", "codegen")
# Measures, predicates and commands speak of a whole run: there, nothing is known beforehand.
_OF_A_WHOLE_RUN = ("memory", "predicate", "script")
_IN_A_STAGE = ("exception", "crash", "hang")


def can_reach(case: AnyCase, signature: Signature) -> bool:
    """Whether a run of the case may get to the stage of the failure."""
    if not isinstance(case, Case) or signature.failure_class in _OF_A_WHOLE_RUN:
        return True
    if _only_returns(case):
        return False
    if signature.failure_class not in _IN_A_STAGE:
        return True
    if signature.stage in _INDUCTOR:
        return case.backend not in BACKENDS[:-1]
    return not (signature.stage == "run" and case.harness == "compile")


def _only_returns(case: Case) -> bool:
    """Whether a case returns plain inputs, each once: so does the trivial one, which did not fail.

    One that returns something odd (a conjugate, what requires a gradient) may show a failure.
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
    """Whether an input is a dense float32 tensor of known sizes, with nothing special about it."""
    fields = as_object(value)
    return is_plain(value) and fields.get("dtype") == "float32" and fields.get("device") == "cpu"

"""Whether a case gets as far as the failure at all: what needs no run to be refused.

AOTAutograd alone lowers nothing, and what is only compiled does not run. Called by the search for
every candidate; being wrong the cautious way (True) costs a run, the other way a step.
"""

from __future__ import annotations

from torchreel.minifier.case import BACKENDS, Case
from torchreel.minifier.kinds import AnyCase
from torchreel.store.signature import Signature

_INDUCTOR = ("post_grad", "lowering", "codegen")
# Measures, predicates and commands speak of a whole run: there, nothing is known beforehand.
_IN_A_STAGE = ("exception", "crash", "hang")


def can_reach(case: AnyCase, signature: Signature) -> bool:
    """Whether a run of the case may get to the stage of the failure."""
    if not isinstance(case, Case) or signature.failure_class not in _IN_A_STAGE:
        return True
    if signature.stage in _INDUCTOR:
        return case.backend not in BACKENDS[:-1]
    return not (signature.stage == "run" and case.harness == "compile")

"""Regions of activation checkpointing in a graph, and their policies of what to save.

Lives here: whether the body of a region has a policy of the program's own, and a policy made of
recorded answers in its place. A policy is called for every operator of the region while AOTAutograd
traces it; nothing else of it decides a compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch.fx import GraphModule

_CONTEXTS = "_checkpoint_context_fn"
"""Key in the `meta` of the body, under which Dynamo leaves what was given as `context_fn`."""


def has_policy(gm: GraphModule) -> bool:
    """Return True if a graph is the body of a region with a policy of the program's own."""
    return _CONTEXTS in gm.meta


def set_policy(gm: GraphModule, answers: Mapping[str, Sequence[str]]) -> None:
    """Give the body of a region a policy that answers for each operator, by name, as recorded.

    An operator that is called more often gets its last answer again, and one that is not in the
    recording is computed anew.
    """
    from torch.utils.checkpoint import CheckpointPolicy

    known = {name: [CheckpointPolicy[text] for text in texts] for name, texts in answers.items()}
    gm.meta[_CONTEXTS] = partial(_contexts, known)


def _contexts(known: Mapping[str, Sequence[Any]]) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    asked: Counter[tuple[str, bool]] = Counter()

    def policy(context: Any, operator: object, *args: object, **kwargs: object) -> Any:
        key = str(operator), bool(context.is_recompute)
        asked[key] += 1
        found = known.get(key[0])
        if not found:
            return CheckpointPolicy.PREFER_RECOMPUTE
        return found[min(asked[key], len(found)) - 1]

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


def answers() -> frozenset[str]:
    """Return all that a policy may answer, by torch's names."""
    from torch.utils.checkpoint import CheckpointPolicy

    return frozenset(CheckpointPolicy.__members__)


def answer_of(verdict: object) -> str:
    """Return torch's name of a policy's answer, which may be a truth value; '' for any other."""
    from torch.utils.checkpoint import CheckpointPolicy

    if isinstance(verdict, bool):
        verdict = CheckpointPolicy.MUST_SAVE if verdict else CheckpointPolicy.PREFER_RECOMPUTE
    return verdict.name if isinstance(verdict, CheckpointPolicy) else ""


def node_under_way() -> str:
    """Return the name of the node whose operators are run by an interpreter of its graph."""
    from torch.fx import traceback

    origins: Sequence[Any] = traceback.get_current_meta().get("from_node") or ()
    return str(origins[-1].name) if origins else ""

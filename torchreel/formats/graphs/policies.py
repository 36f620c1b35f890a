"""The policy of a region of activation checkpointing, as the answers that it gave.

Lives here: reading them out of the `extra` of the region's body, and writing them. Not here: a
policy that answers like that (`torch_compat.graph_calls`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.errors import UnsupportedError
from torchreel.formats.graphs import SAVE_POLICY
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.graph_calls import activation_checkpoints

Answers = Mapping[str, tuple[str, ...]]
"""The answers of a policy, in order, by the name of the operator."""
RECOMPUTE = "PREFER_RECOMPUTE"
"""The answer for every operator in a region without a policy."""


def answers_of(extra: Mapping[str, Json]) -> Answers | None:
    """Return the answers that the `extra` of a body holds; None if the region has no policy.

    Raises `UnsupportedError` for an answer that torch does not know.
    """
    if SAVE_POLICY not in extra:
        return None
    data, known = extra[SAVE_POLICY], activation_checkpoints.answers()
    found: dict[str, tuple[str, ...]] = {}
    for name, answers in as_object(data).items():
        texts = tuple(map(str, list_only(answers)))
        if not texts or not known.issuperset(texts):
            raise UnsupportedError(f"no policy of checkpointing answers {answers!r:.80}")
        found[str(name)] = texts
    return found


def with_answers(extra: Mapping[str, Json], answers: Answers) -> dict[str, Json]:
    """Return the `extra` of a body with these answers.

    Operators that are never saved are left out, and so is a policy that saves none.
    """
    telling: Json = {
        name: list(texts) for name, texts in answers.items() if set(texts) != {RECOMPUTE}
    }
    others = {key: value for key, value in extra.items() if key != SAVE_POLICY}
    return {**others, SAVE_POLICY: telling} if telling else others

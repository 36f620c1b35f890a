"""Let a policy of activation checkpointing save less, or answer the same for every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.formats.graphs.policies import RECOMPUTE, answers_of, with_answers
from torchreel.minifier.cases.case import Case
from torchreel.minifier.passes.base import CaseEdit, CasePass, Path, graph_at, paths, with_graph_at


@dataclass(frozen=True)
class SetAnswer(CaseEdit):
    """The policy of the body at `path` gives this answer for all calls of an operator."""

    path: Path
    operator: str
    answer: str

    def on(self, case: Case) -> Case | None:
        """Return the case with this answer; None where there is no such policy any more."""
        graph = graph_at(case, self.path)
        answers = answers_of(graph.extra) if graph is not None else None
        if graph is None or answers is None or self.operator not in answers:
            return None
        extra = with_answers(graph.extra, {**answers, self.operator: (self.answer,)})
        return with_graph_at(case, self.path, replace(graph, extra=extra))


class FewerAnswers(CasePass):
    """Save nothing of an operator; or of all its calls, where the policy saved some."""

    name = "fewer answers"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose both for each operator in the policy of each body."""
        found: list[CaseEdit] = []
        for path in paths(case.graph):
            graph = graph_at(case, path)
            assert graph is not None, "paths() names graphs that are there"
            for name, answers in sorted((answers_of(graph.extra) or {}).items()):
                saved = next(answer for answer in answers if answer != RECOMPUTE)
                found += [SetAnswer(path, name, RECOMPUTE), SetAnswer(path, name, saved)]
        return found

"""The policy of a region of activation checkpointing as the source of a function.

Lives here: the function that `checkpoint` takes as `context_fn`. Called by both forms of a graph
(`functions`, `graphs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.formats.graphs.policies import RECOMPUTE, Answers, answers_of
from torchreel.minifier.scripts.names import public_target
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json

_INDENT = "    "
_SAVE = "MUST_SAVE"
_MAKE = "create_selective_checkpoint_contexts"


class Policies:
    """The functions that a script needs for its regions, each once."""

    def __init__(self, imports: tuple[str, ...]) -> None:
        self._imports = imports
        self._names: dict[tuple[str, ...], str] = {}

    def name(self, extra: Mapping[str, Json]) -> str:
        """Return the name of the function for a body; '' for one without a policy.

        Raises `UnsupportedError` for an operator that no script can name.
        """
        answers = answers_of(extra)
        if not answers:
            return ""
        known = len(self._names)
        return self._names.setdefault(
            tuple(self._body(answers)), f"contexts{known + 1 if known else ''}"
        )

    @property
    def lines(self) -> list[str]:
        """Return the definitions."""
        found: list[str] = []
        for body, name in self._names.items():
            found += [*(["", ""] if found else []), f"def {name}():"]
            found += [_INDENT + line for line in body]
        return found

    def _body(self, answers: Answers) -> list[str]:
        if all(set(texts) == {_SAVE} for texts in answers.values()):
            return [f"return {_MAKE}([{', '.join(map(self._operator, sorted(answers)))}])"]
        rows = [
            f"{self._operator(name)}: iter([{', '.join(map(_answer, texts))}]),"
            for name, texts in sorted(answers.items())
        ]
        return [
            "answers = {",
            *(_INDENT + row for row in rows),
            "}",
            "",
            "def policy(context, op, *args, **kwargs):",
            f"{_INDENT}return next(answers.get(op, iter([])), {_answer(RECOMPUTE)})",
            "",
            f"return {_MAKE}(policy)",
        ]

    def _operator(self, name: str) -> str:
        target = f"op:{name}" if "." in name else f"hop:{name}"
        return spelling.function(public_target(target, self._imports))


def _answer(name: str) -> str:
    return f"CheckpointPolicy.{name}"

"""The call that compiles: with the backend that does nothing, if that shows it as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    SourceEdit,
    SourcePass,
    code_of,
    final_place,
    parsed,
    walk,
)


@dataclass(frozen=True)
class EagerBackend(SourceEdit):
    """`torch.compile(..., backend="eager")`: nothing is compiled after Dynamo."""

    place: Place

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the call with that backend, and without what only another one needs."""
        call = cst.ensure_type(node, cst.Call)
        left = [a for a in call.args if _keyword(a) not in ("backend", "options", "mode")]
        args = ", ".join([*(code_of(a).strip(" ,") for a in left), 'backend="eager"'])
        return cst.parse_expression(f"torch.compile({args})")


def _keyword(arg: cst.Arg) -> str:
    return arg.keyword.value if arg.keyword is not None else ""


class SimplerCall(SourcePass):
    """Compile with the backend "eager"."""

    name = "backend"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose one edit; nothing where torch.export ends the program.

        For each call of torch.compile one, in a whole program.
        """
        if case.exports:
            return []
        if case.whole:
            return [
                EagerBackend(place)
                for place, node in walk(parsed(case.text))
                if isinstance(node, cst.Call) and code_of(node.func) == "torch.compile"
            ]
        place = final_place(case)
        return [EagerBackend((*place, ("body", 0), ("value", -1), ("func", -1)))]

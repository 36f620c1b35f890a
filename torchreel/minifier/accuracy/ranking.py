"""Ranks the recorded graphs of stores by how far their compiled results are from eager's.

Lives here: running each distinct graph in both ways, and the order.  Not here: the search for one
that can be reduced (`wrong_results`).  Called by `torchreel triage --accuracy`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from torchreel.errors import RefusedError
from torchreel.minifier.accuracy.inputs import is_wrong, with_telling_inputs
from torchreel.minifier.accuracy.wrong_results import recorded_graphs
from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.interface import Oracle
from torchreel.replay.accuracy.comparators import BY_UP_TO
from torchreel.replay.imposed.documents import document
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json

_ERROR = re.compile(re.escape(BY_UP_TO) + r" ([-+.\deinfa]+)")
_ORDER = ("differs", "not compared", "agrees")


@dataclass(frozen=True)
class GraphAccuracy:
    """A recorded graph, with what its compiled form returns beside eager mode."""

    address: str
    """Of the compile that met it first."""
    frame: str
    call_nodes: int
    compiles: int
    """The number of compiles that have the very same graph."""
    state: Literal["differs", "agrees", "not compared"]
    error: float | None
    """The largest difference of two numbers; None where it is no finite number."""
    detail: str

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return asdict(self)


def rank(
    stores: Iterable[Store],
    imports: tuple[str, ...],
    oracle: Oracle,
    say: Callable[[str], None],
) -> list[GraphAccuracy]:
    """Compare each distinct graph of the stores, and return them: the furthest from eager first."""
    found: list[GraphAccuracy] = []
    cases: dict[str, tuple[Case, GraphAccuracy]] = {}
    for store in stores:
        for owner, row in recorded_graphs(store, None):
            address = f"{store.target}#{owner.place}"
            made = GraphAccuracy(address, owner.frame_name or "", 0, 1, "not compared", None, "")
            try:
                doc = document(store, owner, row)
                case = Case.from_checkpoint(doc, "accuracy", imports=imports)
            except RefusedError as error:
                found.append(replace(made, detail=str(error)))
                continue
            known = cases.get(case.digest, (case, replace(made, compiles=0)))[1]
            cases[case.digest] = case, replace(known, compiles=known.compiles + 1)
    for number, (case, made) in enumerate(cases.values(), 1):
        say(f"graph {number} of {len(cases)}: {made.address}")
        found.append(_compared(case, made, oracle))
    return in_order(found)


def in_order(found: Sequence[GraphAccuracy]) -> list[GraphAccuracy]:
    """Return those that differ first, the largest error before; what has no number differs most."""

    def place(one: GraphAccuracy) -> tuple[int, float]:
        error = float("inf") if one.error is None else one.error
        return _ORDER.index(one.state), -error

    return sorted(found, key=place)


def _error(detail: str) -> float | None:
    number = _ERROR.search(detail)
    error = float("inf") if number is None else float(number[1])
    return error if math.isfinite(error) else None


def _compared(case: Case, made: GraphAccuracy, oracle: Oracle) -> GraphAccuracy:
    made = replace(made, call_nodes=case.call_nodes)
    _, report = with_telling_inputs(case, oracle.judge)
    if is_wrong(report):
        return replace(made, state="differs", error=_error(report.detail), detail=report.detail)
    agrees = report.verdict == "none"
    return replace(made, state="agrees" if agrees else "not compared", detail=report.detail)

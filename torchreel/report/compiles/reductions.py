"""Reads the reduction of a failure from the store.

Lives here: the smallest case as text, and how often it was run and failed the same way.  A case is
data: its graph is printed, nothing of it is run.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select

from torchreel.errors import TorchreelError
from torchreel.report.compiles.graphs import read_graph, text_of
from torchreel.report.document import ReducedCase
from torchreel.store import Store, queries, schema
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.records import Failure, Reduction

_SAME = "same"


def reduced_case(store: Store, failure: Failure, command: str) -> ReducedCase | None:
    """Return the smallest case of a failure; None where nobody reduced it, or it can't be read.

    `command` writes the case as a script and runs that.
    """
    reductions = queries.reductions(store, failure)
    rows = [row for row in reductions if row.is_finished] or reductions
    found = [_case(store, failure, row, command) for row in rows]
    return min((case for case in found if case), key=lambda case: case.after, default=None)


def _case(store: Store, failure: Failure, row: Reduction, command: str) -> ReducedCase | None:
    before, after = (_case_row(store, digest) for digest in (row.start_case, row.best_case))
    if before is None or after is None:
        return None
    try:
        text = text_of_case(read_graph(store.read_blob(after[1])))
    except TorchreelError:
        return None
    same = _times_seen(store, row.best_case, failure.signature_digest)
    return ReducedCase(row.status, before[0], after[0], row.oracle_runs, same, text, command)


def _case_row(store: Store, digest: str) -> tuple[int, str] | None:
    table = schema.cases
    query = select(table.c.call_nodes, table.c.document).where(table.c.digest == digest)
    found = store.rows(query)
    return (found[0].call_nodes, found[0].document) if found else None


def _times_seen(store: Store, digest: str, signature: str) -> int:
    table = schema.verdicts
    query = (
        select(func.count())
        .select_from(table)
        .where(
            table.c.case_digest == digest,
            table.c.signature_digest == signature,
            table.c.verdict == _SAME,
        )
    )
    found = store.rows(query)
    return int(found[0][0]) if found else 0


def text_of_case(document: Mapping[str, Json]) -> str:
    """Return a case as text: its program, or the graph of its checkpoint."""
    program = document.get("text")
    if isinstance(program, str):
        return program
    graph = as_object(document.get("checkpoint")).get("graph")
    return text_of(graph) if isinstance(graph, Mapping) else ""

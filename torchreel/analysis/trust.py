"""Tells which failures are reduced only by running code of the program's: with `--trust` alone.

Lives here: what a store says of that, for the command that is named next. Not here: the refusal
of a reduction without trust (`minifier.initial_cases`), which decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import NEEDS_FRAME, Signature
from torchreel.store.records import Compile

_OPERATORS = "operators"
"""Name in a graph of the operators that are not torch's own (`torchreel.formats.graphs`)."""
_CALLS_BACKEND = "torch._dynamo.output_graph:OutputGraph._call_user_compiler"
"""The innermost frame of torch's where a backend of the program's raised."""


def needs_trust(store: Store, compile: Compile) -> bool:
    """Return True if the failure of a compile is reduced from its frame, or with its backend.

    So is one that happened in the run of a graph with operators of the program's own: nobody
    recorded what these compute.
    Raises `StoreError` where the store can't be read.
    """
    rows = queries.checkpoints(store, compile)
    if not rows:
        return queries.has_frame(store, compile)
    failure = queries.failure_of(store, compile)
    if failure is not None and failure.stage in NEEDS_FRAME:
        return True
    graphs = [row for row in rows if row.entry == "graph"]
    document = _document(store.read_blob(graphs[-1].digest)) if graphs else {}
    if failure is not None and failure.stage == "run" and _extra(document.get("graph"), _OPERATORS):
        return True
    return ":" in str(_extra(document, "backend") or "")


def may_need_trust(signature: Signature) -> bool:
    """Return True if the signature alone indicates that; the compile is not read."""
    return signature.stage in NEEDS_FRAME or signature.frames[:1] == (_CALLS_BACKEND,)


def _document(checkpoint: bytes) -> Mapping[str, Json]:
    """Return a checkpoint as an object; an empty one where it is damaged."""
    try:
        document: Json = parse_json(checkpoint)
    except ValueError:
        return {}
    return as_object(document)


def _extra(document: Json, key: str) -> Json:
    """Return what a checkpoint or a graph has beside its nodes, by name; None without."""
    return as_object(as_object(document).get("extra")).get(key)

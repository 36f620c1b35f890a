"""Tells which failures are reduced only by running code of the program's: with `--trust` alone.

Lives here: what a store says of that, for the command that is named next. Not here: the refusal
of a reduction without trust (`minifier.initial_cases`), which decides.
"""

from __future__ import annotations

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.failures.signature import NEEDS_FRAME, Signature
from torchreel.store.records import Compile

_CALLS_BACKEND = "torch._dynamo.output_graph:OutputGraph._call_user_compiler"
"""The innermost frame of torch's where a backend of the program's raised."""


def needs_trust(store: Store, compile: Compile) -> bool:
    """Return True if the failure of a compile is reduced from its frame, or with its backend.

    Raises `StoreError` where the store can't be read.
    """
    rows = queries.checkpoints(store, compile)
    if not rows:
        return queries.has_frame(store, compile)
    failure = queries.failure_of(store, compile)
    if failure is not None and failure.stage in NEEDS_FRAME:
        return True
    graphs = [row for row in rows if row.entry == "graph"]
    return bool(graphs) and _has_own_backend(store.read_blob(graphs[-1].digest))


def may_need_trust(signature: Signature) -> bool:
    """Return True if the signature alone indicates that; the compile is not read."""
    return signature.stage in NEEDS_FRAME or signature.frames[:1] == (_CALLS_BACKEND,)


def _has_own_backend(checkpoint: bytes) -> bool:
    """Return True if the backend of a checkpoint is no name of torch's: MODULE:FUNCTION."""
    try:
        document: Json = parse_json(checkpoint)
    except ValueError:
        return False
    extra = document.get("extra") if isinstance(document, dict) else None
    return isinstance(extra, dict) and ":" in str(extra.get("backend", ""))

"""A checkpoint of a store, with what the same store knows of it from later in the compile.

Lives here: reading the checkpoint, and what is to be joined: operators that torch does not define
(`operators`), policies of activation checkpointing (`policies`). Called by `replay` and by the
minifier.
"""

from __future__ import annotations

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs import OPERATORS, SAVE_POLICY
from torchreel.replay.imposed.operators import with_operators
from torchreel.replay.imposed.policies import with_policies
from torchreel.store.database import Store
from torchreel.store.records import Checkpoint, Compile

_MARKS = [f'"{key}":'.encode() for key in (OPERATORS, SAVE_POLICY)]


def document(store: Store, compile: Compile, row: Checkpoint) -> CheckpointDoc:
    """Return a checkpoint of a compile, with all that the store knows of it."""
    doc = CheckpointDoc.from_bytes(store.read_blob(row.digest))
    return with_policies(store, compile, with_operators(store, compile, doc))


def document_bytes(store: Store, compile: Compile, row: Checkpoint) -> bytes:
    """Return the same as bytes: those of the store where there is nothing to be joined."""
    data = store.read_blob(row.digest)
    if not any(mark in data for mark in _MARKS):
        return data
    return document(store, compile, row).to_bytes()

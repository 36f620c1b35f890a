"""A checkpoint of a store, with what the same store knows of it from later in the compile.

Lives here: reading the checkpoint, and what is to be joined: operators that torch does not define
(`operators`), policies of activation checkpointing (`policies`). Called by `replay` and by the
minifier.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchreel.formats import namespaces
from torchreel.formats.graphs import OPERATORS, SAVE_POLICY
from torchreel.store.database import Store
from torchreel.store.records import Checkpoint, Compile

if TYPE_CHECKING:
    from torchreel.formats.checkpoints.document import CheckpointDoc

_MARKS = {key: f'"{key}":'.encode() for key in (OPERATORS, SAVE_POLICY)}
_CALLS_KERNEL = b'"hop:triton_kernel_wrapper_'
_OPERATOR = re.compile(rb'"(op:[\w.]+)"')


def document(store: Store, compile: Compile, row: Checkpoint) -> CheckpointDoc:
    """Return a checkpoint of a compile, with all that the store knows of it."""
    return _joined(store, compile, store.read_blob(row.digest))


def document_bytes(store: Store, compile: Compile, row: Checkpoint) -> bytes:
    """Return the same as bytes: those of the store where there is nothing to be joined."""
    data = store.read_blob(row.digest)
    marks = (*_MARKS.values(), _CALLS_KERNEL)
    if not any(mark in data for mark in marks) and not _names_custom(data):
        return data
    return _joined(store, compile, data).to_bytes()


def _joined(store: Store, compile: Compile, data: bytes) -> CheckpointDoc:
    # They import torch, which most replays do in the child alone.
    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.replay.imposed.kernels import with_kernels
    from torchreel.replay.imposed.operators import with_operators
    from torchreel.replay.imposed.policies import with_policies

    doc = CheckpointDoc.from_bytes(data)
    # A graph of Dynamo's may call the packet of an operator, whose overload it does not name.
    if _MARKS[OPERATORS] in data or _names_custom(data):
        doc = with_operators(store, compile, doc)
    if _CALLS_KERNEL in data:
        doc = with_kernels(store, compile, doc)
    return with_policies(store, compile, doc)


def _names_custom(data: bytes) -> bool:
    """Return True if a checkpoint names an operator that torch does not define.

    The nodes of a backward say which operators of the forward they are from, and call none.
    """
    return any(namespaces.is_custom(name.decode()) for name in set(_OPERATOR.findall(data)))

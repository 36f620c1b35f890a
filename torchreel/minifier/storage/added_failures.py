"""Failures that no recording holds: wrong results, predicates and commands, other failures.

As rows of the store they are found again: a reduction goes on, and is exported like any other.
Called by `accuracy` and `initial_cases`.
"""

from __future__ import annotations

import time

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile, Failure


def add_failure(
    store: Store, owner: Compile, signature: Signature, message: str, checkpoint: int | None = None
) -> Failure:
    """Add a failure to a compile, and return it.

    One that an earlier search added is returned again.
    """
    known = _known(store, owner, signature)
    if known is not None:
        return known
    with store.writer() as writer:
        writer.add(
            "failures",
            recording_id=owner.recording_id,
            compile_id=owner.id,
            stage=signature.stage,
            partition=signature.partition,
            failure_class=signature.failure_class,
            exception_type="",
            message=message,
            chain=[],
            signature=signature.to_json(),
            signature_digest=signature.digest,
            checkpoint_id=checkpoint,
            time_ns=time.time_ns(),
        )
    found = _known(store, owner, signature)
    assert found is not None, "it was just written"
    return found


def _known(store: Store, owner: Compile, signature: Signature) -> Failure | None:
    found = [
        failure
        for failure in queries.failures(store, owner.recording_id)
        if failure.compile_id == owner.id and failure.signature_digest == signature.digest
    ]
    return found[0] if found else None

"""Cases out of a store: read whole, or named as damaged."""

from __future__ import annotations

from sqlalchemy import select

from torchreel.errors import DamagedStore, UnsupportedError
from torchreel.minifier.cases.protocol import AnyCase, case_from_bytes
from torchreel.store import Store, schema


def read_case(store: Store, digest: str) -> AnyCase | None:
    """Return the case with this digest; None where there is none.

    Raises DamagedStore when its document is no case.
    """
    query = select(schema.cases.c.document).where(schema.cases.c.digest == digest)
    rows = store.rows(query)
    if not rows:
        return None
    try:
        return case_from_bytes(store.read_blob(rows[0].document))
    except UnsupportedError as error:
        raise DamagedStore(f"{store.target} holds a case that is none: {error}.") from error

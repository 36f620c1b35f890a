"""Findings about a case beyond its verdicts: kept in the store, the newest one counts.

These are bisections, explanations, the partition that Inductor gets, the releases of torch that
show the failure, and how often a case failed when it was run again at the end of a reduction. A
finding belongs to a case, a signature and an environment, as a verdict does.
"""

from __future__ import annotations

import time
from typing import Literal

from sqlalchemy import select

from torchreel.minifier.cases.protocol import AnyCase
from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

Kind = Literal["bisection", "explanation", "part", "releases", "confirmation"]


def keep_finding(
    store: Store, kind: Kind, case: AnyCase, signature: Signature, environment: str, document: Json
) -> None:
    """Keep one in a store that is open for writing."""
    with store.writer() as writer:
        writer.add(
            "findings",
            kind=kind,
            case_digest=case.digest,
            signature_digest=signature.digest,
            environment_digest=environment,
            document=document,
            time_ns=time.time_ns(),
        )


def latest_finding(
    store: Store,
    kind: Kind,
    case: AnyCase,
    environment: str | None = None,
    signature: Signature | None = None,
) -> Json:
    """Return the newest of a kind about a case (left out: in any environment, for any signature).

    None if there is none.
    """
    table = schema.findings
    query = select(table.c.document).where(table.c.kind == kind, table.c.case_digest == case.digest)
    if environment is not None:
        query = query.where(table.c.environment_digest == environment)
    if signature is not None:
        query = query.where(table.c.signature_digest == signature.digest)
    found = store.rows(query.order_by(table.c.id.desc()).limit(1))
    return found[0].document if found else None

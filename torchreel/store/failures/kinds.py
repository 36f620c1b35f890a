"""The kind of a failure, as it is stored: all that tells it from others, but where it was seen.

Two failures of one kind are one bug to whoever made the kinds (`torchreel.analysis.triage.kinds`);
what is in a kind is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of


class FailureKind(NamedTuple):
    """The kind of one failure."""

    rules: int
    """The number of the rules by which it was made: others make others."""
    document: str = ""
    """Canonical JSON; empty where the failure does not count."""

    @property
    def digest(self) -> str | None:
        """The name of the kind; None where the failure does not count."""
        return digest_of(self.document.encode()) if self.document else None


def kind_of(rules: int, document: Json) -> FailureKind:
    """Return the kind with a document."""
    return FailureKind(rules, canonical_json(document).decode())

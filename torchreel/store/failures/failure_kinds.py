"""The kind of a failure, as it is stored: all that tells it from others, and where it was seen.

Two failures of one kind are one bug to whoever made the kinds (`analysis.triage.failure_kinds`);
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
    place: str = ""
    """The address of its compile without the store and the recording, as in '/0/0'."""
    time_ns: int = 0
    run: str = ""
    pid: int = 0
    started_ns: int = 0
    """The time at which its process began to record."""
    rank: int | None = None
    torch: str = ""

    @property
    def digest(self) -> str | None:
        """The name of the kind; None where the failure does not count."""
        return digest_of(self.document.encode()) if self.document else None

    def row(self, failure_id: int, recording_id: int) -> dict[str, object]:
        """Return the row of `failure_kinds` for a failure of a recording."""
        seen = {name: value for name, value in self._asdict().items() if name != "document"}
        numbers = {"failure_id": failure_id, "recording_id": recording_id}
        return {**seen, **numbers, "kind": self.digest}


def document_of(kind: Json) -> str:
    """Return the document of a kind."""
    return canonical_json(kind).decode()

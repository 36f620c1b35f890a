"""Turns what PostgreSQL and its driver raise into the errors of torchreel.

Called by `torchreel.store.files.driver_errors`, which is attached to every engine.  The classes are
those of https://www.postgresql.org/docs/current/errcodes-appendix.html; the driver is not imported.
"""

from __future__ import annotations

from torchreel.errors import DamagedStore, LockedStore, MissingStore, StoreError
from torchreel.patterns import lazy_text

_MEANING: dict[str, tuple[type[StoreError], str]] = {
    "28": (LockedStore, "does not let this user in: {0}."),
    "3D": (MissingStore, "is no database of its server: {0}."),
    "42501": (LockedStore, "does not let this role do that: {0}."),
    "25006": (LockedStore, "can't be written to: {0}."),
    "57014": (StoreError, "did not answer a query in time: {0}."),
    "53": (LockedStore, "has no room for this: {0}."),
    "40": (LockedStore, "is busy with another transaction: {0}."),
    "55": (LockedStore, "is locked by another transaction: {0}."),
    "57": (StoreError, "was shut down: {0}."),
    "08": (StoreError, "can't be reached any more: {0}."),
    "22": (DamagedStore, "does not take this value: {0}."),
    "23": (DamagedStore, "does not take this row: {0}."),
    "54": (DamagedStore, "does not take a value of this size: {0}."),
    "42": (DamagedStore, "is damaged: the database says '{0}'."),
    "XX": (DamagedStore, "is damaged: the database says '{0}'."),
}
"""By SQLSTATE, or the class that it begins with."""
_REFUSALS = (
    (MissingStore, lazy_text(r'FATAL: +database ".*" does not exist')),
    (
        LockedStore,
        lazy_text(
            r"no password supplied|FATAL: +(password|role|no pg_hba|permission|too many|sorry)"
        ),
    ),
)
"""By the words of a server that speaks English: of a connection that it refuses, the driver has no
code.  In another language, the error is a StoreError like that of a server that is not there."""
_LONGEST = 300


def store_error(error: BaseException, target: str) -> StoreError | None:
    """Return the StoreError that an error of psycopg stands for; None for any other."""
    if not type(error).__module__.startswith("psycopg"):
        return None
    state = getattr(error, "sqlstate", None)
    kind, sentence = _MEANING.get(state or "", (None, "")) if state else _without_state(error)
    if kind is None and state:
        kind, sentence = _MEANING.get(state[:2], (StoreError, "reports an error: {0}."))
    assert kind is not None
    return kind(f"{target} {sentence.format(_first_line(error))}")


def _without_state(error: BaseException) -> tuple[type[StoreError], str]:
    """Return the meaning of an error that the driver reports itself: mostly, no connection."""
    if type(error).__name__ not in ("OperationalError", "ConnectionTimeout"):
        return DamagedStore, "does not take this value: {0}."
    kinds = (kind for kind, pattern in _REFUSALS if pattern.search(str(error)))
    return next(kinds, StoreError), "can't be opened: {0}."


def _first_line(error: BaseException) -> str:
    """Return the server's sentence, without the detail, which may quote a row."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:_LONGEST]

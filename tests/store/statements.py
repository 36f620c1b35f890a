"""Counts the statements that are executed on a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event

from torchreel.store import Store

_TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK")


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """The statements of a block, in order, without those that begin and end transactions."""
    executed: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith(_TRANSACTIONS):
            executed.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        event.remove(store.engine, "before_cursor_execute", note)

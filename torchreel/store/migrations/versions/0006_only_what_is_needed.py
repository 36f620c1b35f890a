"""One row for the pages that are in one blob; fewer indices in a file.

From here on a file has the tables of what was computed (`schema.COMPUTED`) from the first such row
on: a later step that changes one of them has to look whether it is there.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NOT_IN_A_FILE = (
    ("failures", "signature_digest"), ("failures", "checkpoint_id"), ("checkpoints", "graph_id"),
)  # fmt: skip


def upgrade() -> None:
    connection = op.get_bind()
    found = connection.execute(sa.text(_PAGES)).all()
    op.drop_table("event_pages")
    pages = op.create_table(
        "event_pages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=True),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_event_pages_compile_id", "event_pages", ["compile_id"])
    for group in _groups(found):
        connection.execute(pages.insert().values(_joined(group)))
    if connection.dialect.name != "sqlite":
        op.create_index("ix_event_pages_recording_id", "event_pages", ["recording_id"])
        return
    for table, column in _NOT_IN_A_FILE:
        op.drop_index(f"ix_{table}_{column}", table, if_exists=True)


_PAGES = """SELECT recording_id, compile_id, digest, line, kind, count, first_seq, last_seq
FROM event_pages ORDER BY recording_id, compile_id, digest, line, id"""


_MOST_PAGES = 10_000
"""In one blob: there is one for each kind of events."""


def _groups(rows: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the rows of one blob each, in the order of the event log."""
    groups: list[list[Any]] = []
    for _, found in itertools.groupby(rows, key=lambda row: tuple(row[:3])):
        same = list(found)
        # without a line, the blob is one page; several rows may name it
        groups += [same] if same[0].line is not None else [[row] for row in same]
    yield from sorted(groups, key=lambda group: min(row.first_seq for row in group))


def _joined(group: list[Any]) -> dict[str, Any]:
    here = {1 if row.line is None else row.line: [row.kind, row.count] for row in group}
    if min(here) < 1 or max(here) > _MOST_PAGES:
        raise ValueError(f"pages of events on lines {min(here)} to {max(here)}")
    # The rows of events without a compile were deleted one by one: their pages keep their places.
    kinds = [here.get(line) for line in range(1, max(here) + 1)]
    return {
        "recording_id": group[0].recording_id,
        "compile_id": group[0].compile_id,
        "first_seq": min(row.first_seq for row in group),
        "last_seq": max(row.last_seq for row in group),
        "kinds": json.dumps(kinds, separators=(",", ":"), ensure_ascii=False),
        "digest": group[0].digest,
    }

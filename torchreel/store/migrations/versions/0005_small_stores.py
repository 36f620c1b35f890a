"""Packs in parts, with dictionaries; several pages in one blob; fewer indices in a file.

A file that is there already keeps the tables that a new one has without rowids: that is only a
matter of space.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NOT_IN_A_FILE = (
    ("recordings", "replay_of"), ("compiles", "config_id"), ("compiles", "recording_id"),
    ("event_pages", "recording_id"), ("stack_pages", "recording_id"),
    ("frame_bundles", "compile_id"), ("output_codes", "compile_id"), ("failures", "recording_id"),
    ("failures", "compile_id"), ("replays", "compile_id"), ("replays", "recording_id"),
    ("cases", "failure_id"), ("reductions", "failure_id"), ("by_catch", "reduction_id"),
    ("findings", "case_digest"),
)  # fmt: skip


def upgrade() -> None:
    op.add_column("packs", sa.Column("first", sa.Integer(), nullable=True))
    op.add_column("packs", sa.Column("dictionary", sa.Integer(), nullable=True))
    op.add_column("event_pages", sa.Column("line", sa.Integer(), nullable=True))
    if op.get_bind().dialect.name == "sqlite":
        for table, column in _NOT_IN_A_FILE:
            op.drop_index(f"ix_{table}_{column}", table)

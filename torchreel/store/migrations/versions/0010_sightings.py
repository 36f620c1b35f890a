"""Columns beside the kind of a failure that say where and when it was seen: triage joins nothing.

Rows of the table before are of older rules, which nobody reads any more: 'torchreel prepare' and
pushes write new ones.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("recording_id", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("torch", sa.Text(), nullable=False),
    ]


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _make_anew()
        return
    op.execute("DELETE FROM failure_kinds")  # the table itself stays: roles have rights in it
    for column in _columns():
        op.add_column("failure_kinds", column)
    op.drop_index("ix_failure_kinds_kind", "failure_kinds")
    op.create_index("ix_failure_kinds_kind", "failure_kinds", ["kind", "rules"])


def _make_anew() -> None:
    if not sa.inspect(op.get_bind()).has_table("failure_kinds"):
        return  # a file gets it, as it is now, with the first row of such a table
    op.drop_table("failure_kinds")
    op.create_table(
        "failure_kinds",
        sa.Column("failure_id", sa.Integer(), nullable=False),
        sa.Column("rules", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        *_columns(),
        sa.ForeignKeyConstraint(["failure_id"], ["failures.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("failure_id"),
    )

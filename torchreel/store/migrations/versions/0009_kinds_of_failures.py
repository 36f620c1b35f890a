"""The kinds of failures, by which triage reads many at once."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kinds",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "failure_kinds",
        sa.Column(
            "failure_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("rules", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["failure_id"], ["failures.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("failure_id"),
    )
    if op.get_bind().dialect.name != "sqlite":
        op.create_index("ix_failure_kinds_kind", "failure_kinds", ["kind"])

"""The identities of what was pushed; on a server, numbers of 64 bits, as a file always had."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    on_server = op.get_bind().dialect.name != "sqlite"
    if on_server:
        _widen()
    op.create_table(
        "origins",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "recording_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True
        ),
        sa.Column("row_id", sa.BigInteger(), nullable=False),
        sa.Column("pushed_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("digest"),
    )
    if on_server:
        op.create_index("ix_origins_recording_id", "origins", ["recording_id"])


def _widen() -> None:
    found = sa.inspect(op.get_bind())
    for table in found.get_table_names():
        columns = {column["name"]: column["type"] for column in found.get_columns(table)}
        for name, type_ in columns.items():
            if isinstance(type_, sa.INTEGER) and not isinstance(type_, sa.BIGINT):
                op.alter_column(table, name, type_=sa.BigInteger())
        if "id" in columns:
            op.execute(f"ALTER SEQUENCE {table}_id_seq AS BIGINT")

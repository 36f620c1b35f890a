"""Compiles after a reset of Dynamo, which gives its names anew, have names of their own."""

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    generation = sa.Column("generation", sa.Integer(), nullable=False, server_default="0")
    op.add_column("compiles", generation)
    connection = op.get_bind()
    known: dict[int, set[tuple[str, int]]] = defaultdict(set)
    resets: dict[int, int] = defaultdict(int)
    for row in connection.execute(sa.text(_NAMED)).all():
        name = (row.compile_id, row.attempt)
        if name in known[row.recording_id]:
            known[row.recording_id].clear()
            resets[row.recording_id] += 1
        known[row.recording_id].add(name)
        if resets[row.recording_id]:
            values = {"id": row.id, "generation": resets[row.recording_id]}
            connection.execute(sa.text(_UPDATE), values)


_NAMED = """SELECT id, recording_id, compile_id, attempt FROM compiles
WHERE compile_id <> '-' ORDER BY id"""
_UPDATE = "UPDATE compiles SET generation = :generation WHERE id = :id"

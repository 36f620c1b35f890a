"""Blobs that are kept together, in packs; frames of stacks in pages."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
import zstandard
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "packs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.add_column("blobs", sa.Column("pack", sa.Integer(), nullable=True))
    op.add_column("blobs", sa.Column("start", sa.BigInteger(), nullable=True))
    op.create_table(
        "stack_pages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_stack_pages_recording_id", "stack_pages", ["recording_id"])
    connection = op.get_bind()
    rows = connection.execute(sa.text(_FRAMES)).all()
    for recording_id, frames in itertools.groupby(rows, key=lambda row: row[0]):
        _add_page(connection, recording_id, [row[1:] for row in frames])
    op.drop_table("stack_frames")


_COLUMNS = ("id", "parent", "file", "line", "name")
_FRAMES = (
    f"""SELECT recording_id, {", ".join(_COLUMNS)} FROM stack_frames ORDER BY recording_id, id"""
)


def _add_page(connection: sa.Connection, recording_id: int, frames: Sequence[Any]) -> None:
    columns = dict(zip(_COLUMNS, map(list, zip(*frames, strict=True)), strict=True))
    data = json.dumps(columns, separators=(",", ":"), ensure_ascii=False).encode()
    values = {
        "recording": recording_id, "digest": hashlib.sha256(data).hexdigest(), "size": len(data),
        "data": zstandard.ZstdCompressor().compress(data),
    }  # fmt: skip
    connection.execute(
        sa.text(
            "INSERT INTO blobs (digest, codec, size, data) VALUES (:digest, 'zstd', :size, :data) "
            "ON CONFLICT DO NOTHING"
        ),
        values,
    )
    connection.execute(
        sa.text("INSERT INTO stack_pages (recording_id, digest) VALUES (:recording, :digest)"),
        values,
    )

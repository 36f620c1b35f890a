"""The first schema.

Written by Alembic from `torchreel.store.schema` as it was then, and frozen: what changes later
is a later file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "configs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "recordings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("replay_of", sa.Integer(), nullable=True),
        sa.Column("entry", sa.Text(), nullable=True),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("argv", sa.Text(), nullable=False),
        sa.Column("cwd", sa.Text(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.Column("exit_status", sa.BigInteger(), nullable=True),
        sa.Column("exit_signal", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_recordings_replay_of"), "recordings", ["replay_of"], unique=False)
    op.create_table(
        "verdicts",
        sa.Column("case_digest", sa.Text(), nullable=False),
        sa.Column("signature_digest", sa.Text(), nullable=False),
        sa.Column("environment_digest", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("observed", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("case_digest", "signature_digest", "environment_digest"),
    )
    op.create_table(
        "compiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Text(), nullable=False),
        sa.Column("frame_id", sa.BigInteger(), nullable=True),
        sa.Column("frame_compile_id", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("frame_name", sa.Text(), nullable=False),
        sa.Column("frame_file", sa.Text(), nullable=False),
        sa.Column("frame_line", sa.BigInteger(), nullable=False),
        sa.Column("frame_source", sa.Text(), nullable=True),
        sa.Column("backend", sa.Text(), nullable=True),
        sa.Column("config_id", sa.Integer(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["config_id"], ["configs.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("compiles_by_name", "compiles", ["recording_id", "compile_id"], unique=False)
    op.create_index(op.f("ix_compiles_config_id"), "compiles", ["config_id"], unique=False)
    op.create_index(op.f("ix_compiles_recording_id"), "compiles", ["recording_id"], unique=False)
    op.create_table(
        "config_entries",
        sa.Column("config_id", sa.Integer(), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("portable", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["config_id"], ["configs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("config_id", "module", "key"),
    )
    op.create_table(
        "environment",
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("recording_id", "key"),
    )
    op.create_table(
        "lost",
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("recording_id", "reason", "place"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("recording_id", "seq", name="one_event_per_position"),
    )
    op.create_index(op.f("ix_events_compile_id"), "events", ["compile_id"], unique=False)
    op.create_table(
        "graphs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.Column("call_nodes", sa.BigInteger(), nullable=False),
        sa.Column("inputs", sa.BigInteger(), nullable=False),
        sa.Column("outputs", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text_digest", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_graphs_compile_id"), "graphs", ["compile_id"], unique=False)
    op.create_table(
        "output_codes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        op.f("ix_output_codes_compile_id"), "output_codes", ["compile_id"], unique=False
    )
    op.create_table(
        "replays",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=True),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("compared", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_replays_compile_id"), "replays", ["compile_id"], unique=False)
    op.create_index(op.f("ix_replays_recording_id"), "replays", ["recording_id"], unique=False)
    op.create_table(
        "stages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_stages_compile_id"), "stages", ["compile_id"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("graph_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["graph_id"], ["graphs.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_checkpoints_compile_id"), "checkpoints", ["compile_id"], unique=False)
    op.create_index(op.f("ix_checkpoints_graph_id"), "checkpoints", ["graph_id"], unique=False)
    op.create_table(
        "graph_targets",
        sa.Column("graph_id", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["graph_id"], ["graphs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("graph_id", "depth", "target"),
    )
    op.create_table(
        "failures",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("recording_id", sa.Integer(), nullable=False),
        sa.Column("compile_id", sa.Integer(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("failure_class", sa.Text(), nullable=False),
        sa.Column("exception_type", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("signature_digest", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.Integer(), nullable=True),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["compile_id"], ["compiles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["recording_id"], ["recordings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_failures_checkpoint_id"), "failures", ["checkpoint_id"], unique=False)
    op.create_index(op.f("ix_failures_compile_id"), "failures", ["compile_id"], unique=False)
    op.create_index(op.f("ix_failures_recording_id"), "failures", ["recording_id"], unique=False)
    op.create_index(
        op.f("ix_failures_signature_digest"), "failures", ["signature_digest"], unique=False
    )
    op.create_table(
        "cases",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("failure_id", sa.Integer(), nullable=True),
        sa.Column("call_nodes", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["failure_id"], ["failures.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index(op.f("ix_cases_failure_id"), "cases", ["failure_id"], unique=False)
    op.create_table(
        "reductions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("failure_id", sa.Integer(), nullable=True),
        sa.Column("start_case", sa.Text(), nullable=False),
        sa.Column("best_case", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("oracle_runs", sa.BigInteger(), nullable=False),
        sa.Column("cache_hits", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["failure_id"], ["failures.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_reductions_failure_id"), "reductions", ["failure_id"], unique=False)
    op.create_table(
        "by_catch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("reduction_id", sa.Integer(), nullable=False),
        sa.Column("signature_digest", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("case_digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["reduction_id"], ["reductions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_by_catch_reduction_id"), "by_catch", ["reduction_id"], unique=False)


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema")

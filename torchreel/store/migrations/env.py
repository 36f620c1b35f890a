"""Alembic's entry point: runs the migrations on the connection that `upgrade` hands over."""

from alembic import context

from torchreel.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite can't alter most things of a table in place: Alembic copies it instead
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

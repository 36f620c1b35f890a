"""Which schema this version of torchreel writes."""

REVISION = "0006"
"""The Alembic revision of `schema` (and of `schema.sql`); the newest one that can be read."""

"""The revision of the schema that this version of torchreel writes."""

REVISION = "0010"
"""The Alembic revision of `schema` (and of `schema.sql`); the newest one that can be read."""

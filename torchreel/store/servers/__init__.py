"""A store on a server: PostgreSQL's part of what `files` is for SQLite."""

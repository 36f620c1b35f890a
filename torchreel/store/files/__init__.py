"""The SQLite file of a store: how it is opened, locked and written to, and what may go wrong."""

"""The event log: what compiling threads append, and how it gets into the store."""

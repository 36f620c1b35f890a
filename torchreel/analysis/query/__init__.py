"""SQL over a store: `views` says what there is to ask, `query` runs one statement."""

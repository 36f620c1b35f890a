"""The one way from a store's file to values: what is read is checked here, and nowhere else.

`connections` opens the file, `file_schema` looks at its tables, `rows` at the values of rows,
`documents` at JSON, `holes` at what events make together; the limits of all are in
`torchreel.store.limits`.
"""

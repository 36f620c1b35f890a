"""A case as a Python script that needs torch alone.

Lives here: the complete scripts (`script` for graphs, `source_form` for programs), their parts, and
which programs a script may be (`validation`). Not here: whether a script shows its failure, and
which files are written (`repro`). Used by exports, by programs that are assembled (`source`), and
by a command of the user's that judges scripts.
"""

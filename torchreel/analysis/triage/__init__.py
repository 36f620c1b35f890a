"""Tells which of many failures are one bug.

`failures` reads them, `canonical_form` and `grouping` compare them.
Nothing here imports torch or runs anything of a store.  Called by `torchreel triage`.
"""

"""Graphs: FX graphs and the metadata of their nodes as data, and back."""

OPERATORS = "operators"
"""Key in the `extra` of a graph document: the program's own operators (`operators`)."""

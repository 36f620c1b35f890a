"""Graphs: FX graphs and the metadata of their nodes as data, and back."""

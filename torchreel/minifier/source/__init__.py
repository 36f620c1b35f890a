"""Failures of Dynamo's own: the case is the source of a program, not a graph.

Lives here: the case, its order, how a program is assembled from the bundle of a frame (`assemble`),
its passes (`passes`, on the syntax tree) and its runs (`harness`). Not here: the search, which is
the one that graphs have. A program from a store is code: nothing here runs without `--trust`.
"""

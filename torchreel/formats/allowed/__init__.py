"""The rules for graphs out of a store: they stand between a stranger's file and live functions.

Lives here: which functions have a name (`functions`), which values a graph computes
(`value_kinds`), which methods and attributes those have (`members`), where text may stand
(`strings`), and where a number may (`enumerations`).  Not here: the check of a whole graph by all
of them (`formats.graphs.check`).

The rules are applied to the graph as data, before any part of it is built: they hold for each way
in which a graph is executed afterwards (by a compiler, in eager mode, as the text of a script).
"""

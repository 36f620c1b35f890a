"""Private names of torch, by area, and the releases that have them.

Lives here: accessors of private names that several packages need, one module for each area of torch
(`dynamo`, `aot`, `inductor`, `fx`, `shapes`, ...); the known releases (`releases`); the declaration
of a name that only some of them have (`names`).  Not here: names that one layer alone needs
(`recorder.probes`, `replay.imposed`, `minifier.oracle.child`).

To support another version of torch, these files change.  Importing the package imports no torch; an
area imports it.
"""

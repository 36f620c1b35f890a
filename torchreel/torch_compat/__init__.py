"""Private names of torch, by area, and the releases that have them.

Lives here: accessors of private names that several packages need, a module or a room for each area
of torch (`dynamo`, `aot`, `inductor`, `fx`, `shapes`, `operators`, ...); the known releases, and
the declaration of a name that only some of them have (`versions`).  Not here: names that one layer
alone needs (`recorder.probes`, `replay.imposed`, `minifier.oracle.child`).

To support another version of torch, these files change.  Importing the package imports no torch; an
area imports it.
"""

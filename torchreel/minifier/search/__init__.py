"""The search: from a failing case to the simplest one that still fails with its signature.

`search` repeats passes to a fixpoint, `failure_search` does so for a failure in a store. Lives here
as well: whether the first case fails at all (`reproduction`), when a failure is the recorded one
but for details (`similar`), verdicts computed once, and what is spent of a budget
(`cached_oracle`), one sweep of a pass (`sweep`) in runs of edits (`run_lengths`), what spares the
oracle a run (`data_flow`, `reachability`), and going on with one partition (`partitions`). Not
here: what is tried (`passes`), what is simpler (`cases.order`), what runs a case (`oracle`).
"""

"""The search: from a failing case to the simplest one that still fails with its signature.

`search` repeats passes to a fixpoint. Lives here as well: whether the first case fails at all
(`reproduction`), verdicts computed once (`cached_oracle`), one sweep of a pass (`sweep`) in runs of
edits (`run_lengths`), and what spares the oracle a run (`data_flow`, `reachability`). Not here:
what is tried (`passes`), what is simpler (`cases.order`), what runs a case (`oracle`).
"""

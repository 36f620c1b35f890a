"""Wrong results: compiled code that computes something else than eager mode does.

Lives here: finding the first recorded graph or frame that does (`wrong_results`), inputs that show
it (`inputs`), the first node whose value is wrong (`analyze`). Not here: when two results differ
(`replay.accuracy.comparison`), the runs (`oracle.child`).
"""

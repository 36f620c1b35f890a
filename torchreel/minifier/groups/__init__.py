"""Reductions of many failures: one of each group, here or on the machines of a Ray cluster.

Lives here: one such reduction as a job with a result (`jobs`), and a cluster that runs jobs
(`on_ray`). Not here: which failures are a group (`torchreel.analysis.triage`). Called by
`torchreel minify --group`.
"""

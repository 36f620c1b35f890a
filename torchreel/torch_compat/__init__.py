"""What depends on the release of torch: private names, and the releases that have them.

Lives here: the known releases (`releases`), the declaration of a private name (`names`).  Not here:
what is done with a name (`recorder.probes`, the `torch_names` of replay and minifier).
"""

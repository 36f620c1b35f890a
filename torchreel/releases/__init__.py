"""Other releases of torch: environments that have one, and what a repro did under each.

Lives here: the environments in the user's cache (`environments`), and the results with the first
bad and the first fixed release (`results`). Not here: the runs (`minifier.repro.releases`), which
names a release has (`torch_compat`). Imports no torch.
"""

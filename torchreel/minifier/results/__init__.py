"""Results as plain data: a verdict on a run, a reduction with its progress, an explanation.

Written by the search and by `explain`, kept by `storage`, read by the command line and by `export`.
Nothing here acts.
"""

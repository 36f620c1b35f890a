"""One compile in a report: its row in the listing, and its details.

Lives here: the row (`rows`), the details (`details`) and their parts: graphs, calls of kernels,
stories of `why`, lookups in caches, the reduced case.  Not here: what several compiles have in
common (`groups`, `ranks`), nor the types of the document (`document`).
"""

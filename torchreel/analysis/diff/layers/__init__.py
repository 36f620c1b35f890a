"""The layers of a diff: what two compiles are compared by, one module for each.

Lives here: how a layer is compared, and the table of all of them, in the order of the pipeline
(`table`).  Not here: which compiles belong together (`pairs`), the walk over the layers (`diff`).
"""

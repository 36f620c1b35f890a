"""Programs for failures of Dynamo, whose case is source code instead of a graph.

Lives here: how a program is assembled from the bundle of a frame (`frame_programs`, `assemble`),
its syntax (`syntax`, `liveness`), and the passes over it (`passes`). Not here: the case
(`cases.source_case`), its order (`cases.source_order`), its runs (`oracle.child.program_runner`). A
program from a store is code: nothing here runs without `--trust`.
"""

"""Graphs: FX graphs and the metadata of their nodes as data, and back."""

OPERATORS = "operators"
"""Key in the `extra` of a graph document: the program's own operators (`operators`)."""

SAVE_POLICY = "save_policy"
"""Key in the `extra` of the body of a region of activation checkpointing that has a policy of the
program's own: the answers of it for each operator, by name."""

KERNELS = "triton_kernels"
"""Key in the `extra` of a checkpoint: the Triton kernels of the program, which its nodes call by
number."""

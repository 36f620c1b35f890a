"""Private names of what computes gradients.

Lives here: AOTAutograd's calls and descriptors (`aot`), compiled autograd (`compiled_autograd`),
`autograd.Function` and the decorators of modes (`functions`), the transforms of torch.func
(`transforms`).
"""

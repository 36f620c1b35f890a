"""Private names of tensors: the modes that make fake ones, and nested ones."""

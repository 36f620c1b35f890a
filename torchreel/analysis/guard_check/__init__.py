"""Judges recorded guards against described inputs, without the model and without running them."""

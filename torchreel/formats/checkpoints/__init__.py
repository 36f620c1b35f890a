"""Checkpoints: the complete input of a stage, and each part of it, as data."""

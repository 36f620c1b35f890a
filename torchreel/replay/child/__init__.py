"""Runs in the child of a replay: restores a checkpoint or a frame, and runs its stage."""

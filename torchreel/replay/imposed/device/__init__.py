"""A machine without a GPU that compiles as the recorded one did, for the child of a replay."""

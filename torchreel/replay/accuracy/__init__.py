"""Whether a compiled graph computed what eager computes."""

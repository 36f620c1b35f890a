"""The question why: what led to a symbol, a guard, a recompile, a graph break."""

"""After the minimum: what cures it, what hardly differs and passes, and what does not matter.

`asking.explain` asks the oracle about a few dozen cases near the smallest one; the answers are kept
in the store (`results.explanations`). Called by `minify`.
"""

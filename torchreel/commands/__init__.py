"""What the command line prints: one module per verb, tables, progress, safe text.

Lives here: rendering, and gathering what a verb renders. Not here: options and their help
(`torchreel.cli`), and anything that a program might want to call (the packages beside this one).
Called by `torchreel.cli` alone. Results go to stdout, messages and progress to stderr.
"""

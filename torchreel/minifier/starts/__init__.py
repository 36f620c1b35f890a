"""The cases that a reduction starts with.

Lives here: those of a recorded failure (`failures`), those of a predicate or a command of the
user's (`interestingness`), and when a failure is the recorded one but for details (`signatures`).
Not here: looking for a wrong result (`accuracy`), whether a case fails (`search.reproduction`).
"""

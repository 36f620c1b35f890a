"""The cases that a reduction starts with.

Lives here: what a reduction looks for (`problems`), the cases of a recorded failure (`failures`),
those of a predicate or a command of the user's (`interestingness`). Not here: looking for a wrong
result (`accuracy`), whether a case fails (`search.reproduction`).
"""

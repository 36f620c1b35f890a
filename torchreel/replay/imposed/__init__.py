"""State of the recorded process that a replay is given: machine, caches, operators, answers."""

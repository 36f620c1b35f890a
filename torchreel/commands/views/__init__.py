"""Print the results of the verbs: one module per verb.

Results go to stdout, messages and progress to stderr. Not here: arguments and options (the modules
of the verbs, one folder up).
"""

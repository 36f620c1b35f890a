"""The command line: one module per verb.

Lives here: the arguments and options of each verb, and the call of the library that it makes.
`options` has what several verbs share, `views` prints what each verb found, `rendering` has the
tables, streams and texts that the views use. Not here: anything that a program might want to call
(the packages beside this one). Mounted by `torchreel.cli` alone.

A verb imports the library and its view when it is called, because `torchreel --help` loads every
module of this folder: those load typer and nothing else.
"""

"""Time travel: what the event log answers without a re-run.

Lives here: the symbol table as of an event (`shapes`), the stories of symbols, guards, recompiles,
specialisations and graph breaks (`why`), and which guards an input would pass (`guard_check`).  Not
here: how any of it is printed (`torchreel.commands`), and the ShapeEnv as a live object
(`torchreel.replay.shape_env.rebuild`).  Everything is read as data: torch is not imported, so a
store can be asked about on a machine that has another torch or none.
"""

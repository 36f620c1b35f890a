"""Everything that runs in the child of a worker: one run of one case.

`runners.run_case` is called with a task; `graph_runner` and `program_runner` run the two kinds of
cases. The others serve these: stages, measurements, eager results to compare with, backends. An
exception of the program under test becomes data in `caught.ErrorCatcher` alone. Not here: limits
and processes (`oracle.worker`). The parent never imports this.
"""

"""Reducing a compile that does not end, without waiting for the whole limit in every run.

Lives here: when a candidate is presumed to hang (`oracle`) or to end (`presumed_to_end`), how long
cases of a size take (`growth`), where a process is (`stacks`), which presumptions are proved
(`proof`). Not here: the search (`search`), the process and its limits (`oracle.worker`).
"""

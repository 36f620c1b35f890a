"""The program's own operators as data, and stand-ins for them.

Lives here: the backward graphs of operators, cut out of a joint graph (`formulas`), and operators
made from their descriptions in a process without the program's module (`stand_ins`, `answers`).
Not here: the descriptions themselves (`graphs.operators`), which operators a graph may call
(`targets`). A stand-in runs nothing from a store: it answers with
sizes, strides and dtypes.
"""

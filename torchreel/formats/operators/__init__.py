"""The program's own operators as data, and stand-ins for them.

Lives here: what a graph document says of each operator that torch does not define (`described`),
the backward graphs that can be told from a joint graph (`formulas`), and operators made from that
in a process without the program's module (`stand_ins`, `answers`). Not here: the graph (`graphs`),
which operators a graph may call (`targets`). A stand-in runs nothing from a store: it answers with
sizes, strides and dtypes.
"""

KEY = "operators"
"""Where they stand in the `extra` of a graph document."""

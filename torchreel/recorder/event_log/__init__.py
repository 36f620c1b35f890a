"""The event log: what compiling threads append, and how it gets into the store.

A probe notes an event with values made cheap (`describe`) and a stack (`stacks`), in the span of
its compile and stage (`spans`).  `log` keeps it in a buffer; its thread makes rows of it (`rows`)
and writes them.  `flight` holds back what only a failed compile needs, `failures` recognizes one,
`retention` deletes what is too old or too much.  Not here: what is noted (`probes`).
"""

"""The types of events in an event log, one class for each kind: what a recording can say.

Lives here: their fields and their documentation. Not here: who notes them (`recorder.probes`), how
a store keeps them (`store`).
"""

"""Cases: a graph with its inputs, or a program, and the order that says which one is simpler.

Lives here: the two kinds of cases (`case`, `source_case`), what both have in common (`protocol`),
the order (`order`, `source_order`), reading value descriptions (`descriptions`), and editing a
graph (`graph_edits`). Not here: which edits are tried (`passes`), what runs a case (`oracle`).
Everything else in the minifier uses this room; it uses none of the others and does not import
torch.
"""

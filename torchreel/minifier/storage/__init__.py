"""The part of a reduction that is kept in the store.

Lives here: verdicts and cases (`journal`), other failures that were met (`other_failures`),
failures that no recording holds (`added_failures`), findings about a case (`findings`), the
simplest case known (`best_cases`). Not here: tables and queries (`torchreel.store`).
"""

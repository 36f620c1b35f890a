"""The comparison of two event logs: rules, canonical form, events, results, verdict.

Imports no torch.
"""

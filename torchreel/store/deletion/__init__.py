"""Deleting from a store: recordings (`recordings`), then the blobs that nothing names (`blobs`).

Not here: which recordings go (`torchreel.analysis.triage.keeping`), and what a recorder drops while
it records (`torchreel.recorder.event_log.retention`).
"""

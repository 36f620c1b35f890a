"""Replay: runs a recorded compile again, from its checkpoint alone, and compares.

Lives here: restoring a checkpoint, running its stage in a child under the recorder, comparing the
two recordings.  Not here: how a compile is recorded (`torchreel.recorder`) or reduced
(`torchreel.minifier`).
"""

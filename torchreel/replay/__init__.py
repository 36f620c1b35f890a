"""Replay: runs a recorded compile again, from its checkpoint alone, and compares.

Lives here: restoring a checkpoint (`restore`), running its stage in a child under the recorder
(`child`, `launch`), comparing the two recordings (`compare`).  Not here: how a compile is recorded
(`torchreel.recorder`) or reduced (`torchreel.minifier`).  Importing this imports no torch.
"""

from torchreel.replay.compare.travel import Until, until
from torchreel.replay.compare.verdict import Comparison, Verdict
from torchreel.replay.replay import replay

__all__ = ["Comparison", "Until", "Verdict", "replay", "until"]

"""Replay: runs a recorded compile again, from its checkpoint alone, and compares.

Lives here: restoring a checkpoint (`restore`), running its stage in a child under the recorder
(`child`, `launch`), comparing the two recordings (`compare`).  Not here: how a compile is recorded
(`torchreel.recorder`) or reduced (`torchreel.minifier`).  Importing this imports no torch.
"""

from torchreel.replay.replay import replay
from torchreel.replay.travel import Until, until
from torchreel.replay.verdict import Comparison, Verdict

__all__ = ["Comparison", "Until", "Verdict", "replay", "until"]

"""Replay: runs a recorded compile again, from its checkpoint alone, and compares.

To read it, start with `replay`, the way of one compile: it reads a checkpoint from the store, has a
child process run its stage under the recorder, and compares the two recordings.

- `many`: many replays; `sequence`: Python frames, in their order (the entry `frame`)
- `what_if`: a replay with one thing changed
- `processes`: starting the child; `child`: all that runs in it, from `restore` on
- `imposed`: what the child is given of the recorded process: machine, caches, answers
- `compare`: the comparison and its verdict; `accuracy`: whether values differ
- `shape_env`: a ShapeEnv built again from its events

Not here: how a compile is recorded (`torchreel.recorder`) or reduced (`torchreel.minifier`).
Importing this package imports no torch.
"""

from torchreel.replay.compare.time_travel import Until, until
from torchreel.replay.compare.verdict import Comparison, Verdict
from torchreel.replay.replay import replay

__all__ = ["Comparison", "Until", "Verdict", "replay", "until"]

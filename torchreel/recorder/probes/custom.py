"""Script objects, custom operators and tensor subclasses that a compile meets.

Rows 17 of the design's table of systems.
"""

from __future__ import annotations

from torchreel.recorder.attach import AttachPoint, Probe, Tap
from torchreel.recorder.kinds import Kind

ATTACH_POINTS: tuple[AttachPoint, ...] = ()
KINDS: tuple[Kind, ...] = ()
PROBES: tuple[Probe | Tap, ...] = ()

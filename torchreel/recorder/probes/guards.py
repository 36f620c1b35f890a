"""Guards: each one as it is added, and the tree that is checked at run time.

Rows 4 of the design's table of systems.
"""

from __future__ import annotations

from torchreel.recorder.attach import AttachPoint, Probe, Tap
from torchreel.recorder.kinds import Kind

ATTACH_POINTS: tuple[AttachPoint, ...] = ()
KINDS: tuple[Kind, ...] = ()
PROBES: tuple[Probe | Tap, ...] = ()

"""Export: torch.export and make_fx traces, constraints and suggested fixes.

Rows 19 of the design's table of systems.
"""

from __future__ import annotations

from torchreel.recorder.attach import AttachPoint, Probe, Tap
from torchreel.recorder.kinds import Kind

ATTACH_POINTS: tuple[AttachPoint, ...] = ()
KINDS: tuple[Kind, ...] = ()
PROBES: tuple[Probe | Tap, ...] = ()

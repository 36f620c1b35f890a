"""What the recorder looks at: one module per layer of the pipeline.

Lives here: the list of all probes.  Each module declares at its top the private names of torch that
it needs, and why; nowhere else in the recorder does a name of torch's insides occur.
"""

from torchreel.recorder.attach import AttachPoint, Probe
from torchreel.recorder.probes import aot, dynamo, inductor, run, trace

PROBES: tuple[Probe, ...] = (*dynamo.PROBES, *aot.PROBES, *inductor.PROBES, *run.PROBES)


def attach_points() -> tuple[AttachPoint, ...]:
    """Every private name of torch that the recorder needs."""
    return (*(probe.point for probe in PROBES), *trace.ATTACH_POINTS)

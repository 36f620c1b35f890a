"""The probes: one module per layer of the pipeline.

Lives here: the list of all probes, and of the types of events that they note.  Each module declares
at its top the private names of torch that it needs, and why (`ATTACH_POINTS`), the functions it
stands in front of (`PROBES`) and the events it notes (`EVENTS`); nowhere else in the recorder does
a name of torch's insides occur.
"""

from types import ModuleType
from typing import NamedTuple

from torchreel.events.event import EventType
from torchreel.recorder import watchdog
from torchreel.recorder.attach import AnyProbe, AttachPoint
from torchreel.recorder.probes import (
    activation_checkpoints,
    aot,
    backends,
    bundles,
    collectives,
    compiled_autograd,
    custom,
    dynamo,
    export,
    fake_tensors,
    frames,
    guards,
    inductor,
    nondeterminism,
    output_graph,
    pieces,
    proxies,
    run,
    shape_env,
    subgraphs,
    trace,
)
from torchreel.torch_compat.versions.names import State, state_of

_MODULES: tuple[ModuleType, ...] = (
    dynamo,
    bundles,
    frames,
    output_graph,
    subgraphs,
    guards,
    shape_env,
    fake_tensors,
    proxies,
    activation_checkpoints,
    aot,
    compiled_autograd,
    inductor,
    run,
    nondeterminism,
    collectives,
    custom,
    backends,
    export,
    pieces,
    trace,
)

PROBES: tuple[AnyProbe, ...] = tuple(probe for module in _MODULES for probe in module.PROBES)


def attach_points() -> tuple[AttachPoint, ...]:
    """Return every private name of torch that the recorder needs, each once."""
    points = [point for module in _MODULES for point in module.ATTACH_POINTS]
    return tuple(dict.fromkeys(points))


class Noted(NamedTuple):
    """The origin of events of a type."""

    probe: str
    """The module that notes them."""
    points: tuple[AttachPoint, ...]


def noted_events() -> dict[type[EventType], Noted]:
    """Return every type of event that is noted besides those of torch's own trace."""
    return {
        event_type: Noted(module.__name__.rpartition(".")[2], points)
        for module in (*_MODULES, watchdog)
        for event_type, points in module.EVENTS.items()
    }


def survey() -> list[tuple[AttachPoint, State]]:
    """Return every attach point and its state in this torch (imports torch and its compiler)."""
    return [(point, state_of(point)) for point in attach_points()]

"""The call that compiled a frame, as data: it stands beside the pickle of a frame bundle.

Lives here: the `torch.compile` call, config, ambient state and counters of one compile, what
automatic dynamic shapes had learned of its code.  Not here: the frame's code and objects
(`torchreel.recorder.frames.bundles`), the restoration (`torchreel.replay.child.frames`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import CodeType
from typing import Any

import torch

from torchreel.errors import DamagedStore
from torchreel.formats.checkpoints import ambient, config
from torchreel.formats.frames import loggers
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import counters as torch_counters
from torchreel.torch_compat import distributed
from torchreel.torch_compat.autograd import transforms
from torchreel.torch_compat.dynamo import automatic_dynamic, backends, modes


@dataclass(frozen=True)
class FrameCall:
    """One call of Dynamo: everything besides the frame that decides the compile."""

    backend: str = "inductor"
    """Its name in torch's registry, or `module:qualname`."""
    backend_id: int = 0
    """Tells it from others of this name in the process; 0 in a recording of an older version."""
    backend_function: str = ""
    """The name of the function that it is; '' for an object of a class."""
    options: list[Json] = field(default_factory=list)
    dynamic: bool | None = None
    fullgraph: bool = False
    error_on_graph_break: bool = False
    export: bool = False
    exported: bool = False
    """True if the frame is a call of torch.export, which is made again as it is."""
    filtered: bool = False
    """True if a function of the program filtered the guards."""
    config: list[Json] = field(default_factory=list)
    ambient: dict[str, Json] = field(default_factory=dict)
    device: str | None = None
    """The device in which tensors are made where the program names none."""
    global_device: str | None = None
    """The one that `torch.set_default_device` set, in any thread: Dynamo guards on it."""
    modes: list[str] = field(default_factory=list)
    """Classes of the torch function modes that were active, besides that of the device."""
    functions_off: str = ""
    """The part of `__torch_function__` that the program had switched off (`functions_off`)."""
    transforms: list[str] = field(default_factory=list)
    """The functorch transforms that were open around the frame."""
    levels: list[Json] = field(default_factory=list)
    """The calls that open them again; empty where there are none."""
    world: list[Any] | None = None
    """The rank of the process, the number of ranks and its other groups, where it had a group."""
    seed: int | None = None
    """Of torch's default generator."""
    counters: dict[str, int] = field(default_factory=dict)
    sizes: list[Json] = field(default_factory=list)
    """The sizes of each source that earlier compiles had seen (automatic dynamic shapes)."""
    log_levels: dict[str, int] = field(default_factory=dict)
    """The levels of the program's loggers, by name."""
    floats: list[str] = field(default_factory=list)
    """The float symbols that an earlier compile had specialised: torch keeps these until a restart,
    or a reset, and a symbol of another frame may have the same name."""

    def to_json(self) -> Json:
        """Return it as data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> FrameCall:
        """Return the call from the data of `to_json`; fields of a later version are left out.

        Raises DamagedStore if the data is no object.
        """
        if not isinstance(data, Mapping):
            raise DamagedStore(f"A frame says nothing of its call, but {data!r:.60}.")
        known: dict[str, Any] = {
            item.name: data[item.name] for item in fields(cls) if item.name in data
        }
        return cls(**known)


def encode_frame_call(code: CodeType, closure: object, backend: object, **call: Any) -> FrameCall:
    """Return the call that is about to compile `code`; `call` are fields that only the caller
    knows.
    """
    name, options = backends.backend_of(backend)
    identity, function = backends.identity_of(backend)
    device, function_modes = modes.function_modes()
    return FrameCall(
        backend=name,
        backend_id=identity,
        backend_function=function,
        options=[config.encode_entry("inductor", k, v) for k, v in sorted(options.items())],
        dynamic=backends.dynamic_of(backend),
        error_on_graph_break=modes.errors_on_graph_break(),
        config=config.encode_config(),
        ambient=ambient.encode_ambient(),
        device=device,
        global_device=modes.global_device(),
        modes=function_modes,
        functions_off=ambient.functions_off(),
        transforms=transforms.open_transforms(),
        levels=transforms.open_levels(),
        world=distributed.world(),
        seed=torch.initial_seed(),
        counters=torch_counters.frame_counters(),
        sizes=automatic_dynamic.seen_sizes(code, closure),
        log_levels=loggers.levels(),
        floats=automatic_dynamic.specialized_floats(),
        **call,
    )

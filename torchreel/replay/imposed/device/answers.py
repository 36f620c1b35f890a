"""The names of torch and Triton by which a compile sees a GPU, and recorded answers for them.

Called by `torch_machine` in the child of a replay.  Not here: what torch's C++ asks (`libraries`),
which facts there are (`nondeterminism.accelerator` in the event log).  To support another torch,
this file changes.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from torchreel import sandbox
from torchreel.errors import UnsupportedError
from torchreel.formats import names
from torchreel.replay.imposed.attention import attentions
from torchreel.replay.imposed.device import libraries, measurements
from torchreel.replay.imposed.facts import ATTENTION, BUILD
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import list_only
from torchreel.torch_compat.inductor.code_generation import forget_devices
from torchreel.torch_compat.patching import patched


def impose(stack: ExitStack, facts: Mapping[str, Json], left: list[str], *, run: bool) -> None:
    """Have torch answer as on the recorded machine, as long as the stack is open.

    Appends to `left` what could not be imposed.  Raises UnsupportedError where that would abort
    the process or take the device itself.
    """
    known = Known(facts)
    if not known.devices:
        left.append("the GPU: the event log does not say what it was")
        return
    _check_triton(facts, left)
    if run and torch.cuda.is_available():
        mine = torch.cuda.get_device_name()
        left.append(f"the driver of {known.name}: this machine has its own GPU ({mine})")
    elif run:
        raise UnsupportedError(needs(facts))
    else:  # also where there is a GPU: it may be another one, and a confined child can't open it
        libraries.load(len(known.devices), attentions(facts.get(ATTENTION)))
        _impose_absent(stack, known)
        measurements.impose(stack, facts)
    for name, answer in _answers(known).items():
        _patch(stack, torch.cuda, name, answer)
    _patch(stack, torch.version, "cuda", known.toolkit)
    _patch(stack, torch.version, "hip", known.hip)
    _impose_interface(stack, known)
    _impose_triton(stack, known)


_NEEDS_DEVICE = (
    "the recorded failure shows when the compiled code runs on {}, and there is no such device "
    "here: replay it where there is one, or from an earlier stage"
)


def needs(facts: Mapping[str, Json]) -> str:
    """Return a sentence on a failure that shows when code runs on the recorded device."""
    said = _NEEDS_DEVICE.format(Known(facts).name)
    if not sandbox.is_confined():
        return said
    return f"{said}. The sandbox gives no device to a replay: on a machine with a GPU, add --trust"


# The facts of a device that are text; Inductor writes the others into kernels as they stand.
_MOST_DEVICES = 64
_TEXTS = frozenset({"name", "gcnArchName"})


class Known:
    """The recorded facts of the devices, in the forms in which torch reads them.

    Raises UnsupportedError for facts that would be code in a kernel.
    """

    def __init__(self, facts: Mapping[str, Json]) -> None:
        names.check_comment(facts)
        listed = facts.get("devices")
        devices = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
        self.devices = [_device(d) for d in devices if isinstance(d, Mapping)]
        current = facts.get("current")
        self.current = current if isinstance(current, int) else 0
        if len(self.devices) > _MOST_DEVICES or not 0 <= self.current < max(len(self.devices), 1):
            raise UnsupportedError(
                f"there are 1 to {_MOST_DEVICES} GPUs, and one of them is current"
            )
        self.architectures = [str(one) for one in list_only(facts.get("architectures"))]
        build = facts.get(BUILD)
        self.build = build if isinstance(build, str) and build.isalnum() else None
        self.toolkit, self.hip = facts.get("toolkit"), facts.get("hip")

    @property
    def name(self) -> str:
        """Return the names of the devices: 'NVIDIA H200'."""
        return ", ".join(dict.fromkeys(str(getattr(d, "name", "?")) for d in self.devices))

    def index(self, device: Any = None) -> int:
        """Return the index of a device that was spelled in any of torch's ways."""
        if isinstance(device, int):
            return device
        found = torch.device(device).index if device is not None else None
        return self.current if found is None else found

    def properties(self, device: Any = None) -> Any:
        """Return a device's recorded properties, as `torch.cuda.get_device_properties` does."""
        return self.devices[self.index(device)]

    def capability(self, device: Any = None) -> tuple[int, int]:
        """Major and minor."""
        found = self.properties(device)
        return found.major, found.minor

    def exchange(self, device: int) -> int:
        """Make a device the current one; returns the one before."""
        before = self.current
        if device >= 0:
            self.current = device
        return before


def _device(facts: Mapping[str, Json]) -> SimpleNamespace:
    for key, value in facts.items():
        if key not in _TEXTS and not isinstance(value, (int, float, type(None))):
            raise UnsupportedError(f"the {key!r:.40} of a GPU is a number, found {value!r:.80}")
    return SimpleNamespace(**facts)


def _answers(known: Known) -> dict[str, Any]:
    """Return replacements for functions of `torch.cuda` that query devices, by name."""
    return {
        "get_device_properties": known.properties,
        "get_device_capability": known.capability,
        "get_device_name": lambda device=None: known.properties(device).name,
        "get_arch_list": lambda: list(known.architectures),
        "device_count": lambda: len(known.devices),
    }


def _impose_absent(stack: ExitStack, known: Known) -> None:
    """Let `torch.cuda` answer as if the recorded device were here."""
    # Imported now: where torch says that it is built for CUDA, they want names of such a build.
    importlib.import_module("torch._dynamo.device_interface")
    generator = torch.Generator()
    state = torch.zeros(16, dtype=torch.uint8)
    found: dict[str, Any] = {
        "_is_compiled": lambda: True,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "_is_in_bad_fork": lambda: False,
        "current_device": lambda: known.current,
        "set_device": lambda device: known.exchange(known.index(device)) and None,
        # Two functions: Dynamo has a table with torch's functions as its keys.
        "_exchange_device": lambda device: known.exchange(device),
        "_maybe_exchange_device": lambda device: known.exchange(device),
        "synchronize": lambda device=None: None,
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0),
        "memory_allocated": lambda device=None: 0,
        "mem_get_info": lambda device=None: (known.properties(device).total_memory,) * 2,
        "get_rng_state": lambda device="cuda": state.clone(),
        "set_rng_state": lambda new_state, device="cuda": None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "default_generators": tuple(generator for _ in known.devices),
    }
    for name, answer in found.items():
        _patch(stack, torch.cuda, name, answer)
    _patch(stack, torch.storage._StorageBase, "clone", _cloned)
    forget_devices()
    # Generated code imports it; the code is loaded, and not run.
    _patch(stack, torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
    _patch(stack, torch._C, "_cuda_getDevice", lambda: known.current)
    _patch(stack, torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)


_clone = torch.storage._StorageBase.clone


def _cloned(storage: Any) -> Any:
    """Return a copy of a storage: torch's own way makes none for CUDA in a build for the CPU."""
    if storage.device.type != "cuda":
        return _clone(storage)  # type: ignore[no-untyped-call]
    with no_dispatch():
        made = torch.empty(storage.nbytes(), dtype=torch.uint8, device=storage.device)
        return made.untyped_storage().copy_(storage)


def _impose_interface(stack: ExitStack, known: Known) -> None:
    """Impose the device on Dynamo and Inductor, which took torch.cuda's functions at import."""
    from torch._dynamo import device_interface

    interface = device_interface.CudaInterface
    kept = (
        "current_device", "set_device", "device_count", "current_stream", "synchronize",
        "get_device_properties", "memory_allocated",
    )  # fmt: skip
    for name in kept:
        _patch(stack, interface, name, staticmethod(getattr(torch.cuda, name)))
    for name, found in (("exchange_device", known.exchange), ("get_raw_stream", lambda device: 0)):
        _patch(stack, interface, name, staticmethod(found))
    _patch(stack, interface, "maybe_exchange_device", staticmethod(known.exchange))
    cached = device_interface.caching_worker_device_properties
    cached["cuda"] = list(known.devices)
    stack.callback(cached.pop, "cuda", None)
    for number in range(len(known.devices)):
        device_interface.register_interface_for_device(f"cuda:{number}", interface)


def _check_triton(facts: Mapping[str, Json], left: list[str]) -> None:
    """Check that Triton is here in the recorded version: it writes the code of a GPU graph."""
    recorded = facts.get("triton")
    try:
        here = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        here = ""
    if recorded and not here:
        raise UnsupportedError(
            f"the compile wrote Triton kernels (triton {recorded}), and triton is not installed "
            f"here: install it with pip install 'torchreel[triton]' or triton=={recorded}"
        )
    if recorded and here != recorded:
        left.append(f"triton {recorded}: {here} is installed here")


def _impose_triton(stack: ExitStack, known: Known) -> None:
    if known.build is not None:
        build = known.build
        _patch(stack, torch.utils._triton, "triton_hash_with_backend", lambda: build)
    try:
        from triton.backends.compiler import GPUTarget
        from triton.runtime import driver
    except ImportError:  # no Triton kernels were recorded
        return
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    # A failure of Triton's compiler takes a compile: its result can't be loaded here.
    _patch(stack, CachingAutotuner, "_make_launchers", _without_loading)
    before = driver._active
    driver.set_active(_Driver(known, GPUTarget))
    stack.callback(setattr, driver, "_active", before)


def _without_loading(tuner: Any) -> None:
    """Stand in for `CachingAutotuner._make_launchers`."""
    tuner.launchers = list(tuner.compile_results)


class _Driver:
    """Stands in for Triton's driver: names the target of compilation, and launches nothing."""

    def __init__(self, known: Known, target: Callable[..., Any]) -> None:
        self._known, self._target = known, target
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def get_current_target(self) -> Any:
        """Return the target that Triton compiles kernels for."""
        found = self._known.properties()
        if self._known.hip:
            return self._target("hip", found.gcnArchName.split(":")[0], found.warp_size)
        return self._target("cuda", found.major * 10 + found.minor, found.warp_size)

    def get_current_device(self) -> int:
        """Return the index of the device that kernels would run on."""
        return self._known.current

    def get_current_stream(self, device: object = None) -> int:
        """Return the stream that kernels would run on."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return the device that kernels would run on."""
        return torch.device("cuda", self._known.current)

    def get_device_interface(self) -> Any:
        """Return the module of torch for the device."""
        return torch.cuda

    def _properties(self, device: int) -> dict[str, object]:
        found = self._known.properties(device)
        return {
            "max_shared_mem": getattr(found, "shared_memory_per_block_optin", 0),
            "max_num_regs": getattr(found, "regs_per_multiprocessor", 0),
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": found.warp_size,
        }


def _patch(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute as long as the stack is open; a CPU build lacks some of the names."""
    stack.enter_context(patched(owner, name, value, create=True))

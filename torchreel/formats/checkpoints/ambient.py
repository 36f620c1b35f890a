"""Ambient state: what a compile reads of the process besides its config.

Lives here: one table of names, getters and setters.  Not here: config entries (`config`).
Dynamo's global-state guard (grad mode, autocast, default dtype, determinism, threads) is the
checklist; the rest is what AOTAutograd and Inductor look up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad, profiler

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.autograd import compiled_autograd

Getter = Callable[[], Any]
Setter = Callable[[Any], Any]

_AUTOCAST_DEVICES = ("cpu", "cuda")
_OTHER_DEVICES = ("mps", "xpu", "hpu", "ipu", "xla", "maia", "mtia")
"""Devices of autocast that few programs have: written down where one is not as torch begins."""


def _inference_setter(value: bool) -> None:
    """Inference mode has no setter: `imposed` enters it as a context."""


def _deterministic() -> list[bool]:
    return [
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ]


def _set_deterministic(value: list[bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _autocast(device: str) -> list[Any]:
    return [torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)]


def _autocast_of(device: str) -> Getter:
    return lambda: _autocast(device)


def _set_mkldnn(value: bool) -> None:
    torch.backends.mkldnn.set_flags(bool(value))  # type: ignore[no-untyped-call]


def _set_autocast(device: str) -> Setter:
    def restore(value: list[Any]) -> None:
        torch.set_autocast_enabled(device, bool(value[0]))
        torch.set_autocast_dtype(device, value[1])

    return restore


def _others_autocast() -> list[Any]:
    found = ([device, *_autocast(device)] for device in _OTHER_DEVICES)
    return [one for one in found if one != [*_AS_TORCH_BEGINS[one[0]]]]


_AS_TORCH_BEGINS = {
    device: (device, False, torch.bfloat16 if device in ("hpu", "xla", "maia") else torch.float16)
    for device in _OTHER_DEVICES
}


def _set_others_autocast(rows: list[Any]) -> None:
    wanted = {**_AS_TORCH_BEGINS, **{str(row[0]): tuple(row) for row in rows}}
    for device in _OTHER_DEVICES:
        _set_autocast(device)(list(wanted[device][1:]))


def _reduction(kind: str) -> Getter:
    """Return what gets the switches of reduced precision in cuBLAS; None where all are on."""
    get = getattr(torch._C, f"_get_cublas_allow_{kind}_reduced_precision_reduction")

    def found() -> list[bool] | None:
        value = get()
        switches = list(value) if isinstance(value, tuple) else [value]  # one before split-k
        return None if all(switches) else switches

    return found


def _set_reduction(kind: str) -> Setter:
    get = getattr(torch._C, f"_get_cublas_allow_{kind}_reduced_precision_reduction")
    set_to = getattr(torch._C, f"_set_cublas_allow_{kind}_reduced_precision_reduction")

    def impose(value: list[bool] | None) -> None:
        count = len(now) if isinstance(now := get(), tuple) else 1
        switches = value or [True]
        set_to(*[bool(one) for one in (switches * count)[:count]])

    return impose


_PRECISIONS: Mapping[tuple[str, str], str] = {
    ("generic", "all"): "none", ("cuda", "all"): "none", ("mkldnn", "all"): "none",
    ("cuda", "conv"): "tf32", ("cuda", "rnn"): "tf32",
    ("mkldnn", "conv"): "none", ("mkldnn", "rnn"): "none",
    ("cuda", "matmul"): "none", ("mkldnn", "matmul"): "none",
}  # fmt: skip
"""Precision of float32 by backend and operation, as a process begins: those that others follow come
first."""
_MATMUL = "matmul"


def _matmul_precision() -> str | None:
    """Return the precision of matrix products; None where backends have their own."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it says so
        return None


def _set_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


def _precisions() -> dict[str, str] | None:
    """Return the precision of each backend and operation, where a program set one by itself."""
    get = torch._C._get_fp32_precision_getter
    now = {pair: str(get(*pair)) for pair in _PRECISIONS}
    own = any(value != _PRECISIONS[pair] for pair, value in now.items() if pair[1] != _MATMUL)
    if not own and _matmul_precision() is not None:
        return None
    return {".".join(pair): value for pair, value in now.items()}


def _set_precisions(wanted: Mapping[str, str] | None) -> None:
    """Set the precision of each backend and operation; None means those of the beginning."""
    for pair, first in _PRECISIONS.items():
        value = first if wanted is None else str(wanted.get(".".join(pair), first))
        torch._C._set_fp32_precision_setter(*pair, value)


def _set_saved_tensors_hooks_disabled(message: Any) -> None:
    """Forbid hooks on saved tensors with this message, as torch.func does; allow them with None."""
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        text = str(message).encode("utf-8", "replace").decode()
        torch._C._autograd._saved_tensors_hooks_disable(text)


def _set_dual_level(level: Any) -> None:
    """Enter or leave the level of forward-mode AD, of which torch has one; -1 is outside."""
    if level not in (-1, 0):
        raise UnsupportedError(f"a level of forward-mode AD is 0 or -1, found {level!r:.60}")
    while forward_ad._current_level < level:
        forward_ad.enter_dual_level()  # type: ignore[no-untyped-call]
    while forward_ad._current_level > level:
        forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]


STATE: dict[str, tuple[Getter, Setter]] = {
    "grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "inference_mode": (torch.is_inference_mode_enabled, _inference_setter),
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "num_threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic": (_deterministic, _set_deterministic),
    "fp32_precision": (_precisions, _set_precisions),
    "float32_matmul_precision": (_matmul_precision, _set_matmul_precision),
    "autocast_cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    **{
        f"autocast_{device}": (_autocast_of(device), _set_autocast(device))
        for device in _AUTOCAST_DEVICES
    },
    "sdp_flash": (
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.enable_flash_sdp,
    ),
    "sdp_mem_efficient": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    "sdp_math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "sdp_cudnn": (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    "autocast_others": (_others_autocast, _set_others_autocast),
    **{f"{kind}_reduction": (_reduction(kind), _set_reduction(kind)) for kind in ("bf16", "fp16")},
    "mkldnn": (lambda: bool(torch.backends.mkldnn.enabled), _set_mkldnn),
    "saved_tensors_hooks_disabled": (
        torch._C._autograd._saved_tensors_hooks_get_disabled_error_message,
        _set_saved_tensors_hooks_disabled,
    ),
    "dual_level": (lambda: forward_ad._current_level, _set_dual_level),
    # While a program is profiled, what a compile tells of itself goes through the fake tensors.
    "profiler_enabled": (
        lambda: profiler._is_profiler_enabled,
        lambda value: profiler._set_is_profiler_enabled(bool(value)),
    ),
}


_RARE: Mapping[str, object] = {
    "saved_tensors_hooks_disabled": None, "dual_level": -1, "profiler_enabled": False,
    "sdp_cudnn": True, "autocast_others": [], "bf16_reduction": None, "fp16_reduction": None,
    "fp32_precision": None,
}  # fmt: skip
"""State that is written down only where it is another than this: hardly ever."""


_Keys = torch._C.DispatchKey
_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded


def _below() -> str | None:
    """Return the layer below which calls are dispatched: 'python', 'autograd', or None.

    'python' is inside of `__torch_dispatch__`, 'autograd' inside of an operator.
    """
    if _excluded(_Keys.Functionalize):
        return "python"
    # Inference mode leaves out autograd as well, and is told by itself.
    autograd = not _excluded(_Keys.AutogradFunctionality) or torch.is_inference_mode_enabled()
    return None if autograd else "autograd"


def _dispatching_below(layer: object) -> contextlib.AbstractContextManager[None]:
    """Have calls dispatched below the layer that `_below` returned."""
    guard: Any
    if layer is None:
        guard = contextlib.nullcontext()
    elif layer == "autograd":
        guard = torch._C._AutoDispatchBelowAutograd()
    elif layer == "python":
        kept = torch._C._dispatch_keyset_full_after(_Keys.Python).add(_Keys.Python)
        guard = torch._C._ExcludeDispatchKeyGuard(torch._C._dispatch_keyset_full() - kept)
    else:
        raise UnsupportedError(f"dispatch has no layer {layer!r:.60}")
    found: contextlib.AbstractContextManager[None] = guard
    return found


_FUNCTIONS_OFF: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "": contextlib.nullcontext,
    "subclasses": torch._C.DisableTorchFunctionSubclass,
    "all": torch._C.DisableTorchFunction,
}
"""The parts of `__torch_function__` that a program can switch off, and what does that."""


def functions_off() -> str:
    """Return what of `__torch_function__` is switched off: '', 'subclasses', or 'all'."""
    if torch._C._is_torch_function_all_disabled():
        return "all"
    return "" if torch._C._is_torch_function_enabled() else "subclasses"


def with_functions_off(what: object) -> contextlib.AbstractContextManager[None]:
    """Switch off what `functions_off` returned."""
    if not isinstance(what, str) or what not in _FUNCTIONS_OFF:
        raise UnsupportedError(f"of __torch_function__ nothing is called {what!r:.60}")
    return _FUNCTIONS_OFF[what]()


def encode_ambient() -> dict[str, Json]:
    """Return the ambient state of this moment."""
    state = {name: get() for name, (get, _) in STATE.items()}
    found = {
        name: node_arguments.encode_value(value)
        for name, value in state.items()
        if name not in _RARE or value != _RARE[name]
    }
    below = _below()
    if below is not None:
        found["dispatch_below"] = below
    if compiled_autograd.is_compiled_autograd():
        found["compiled_autograd"] = True
    return found


@contextlib.contextmanager
def imposed(ambient: Json) -> Iterator[None]:
    """Impose recorded ambient state for the length of a `with`."""
    if not isinstance(ambient, Mapping):
        raise UnsupportedError("the checkpoint has no ambient state")
    before = {name: get() for name, (get, _) in STATE.items()}
    wanted = {name: node_arguments.decode_value(tree, _no_leaf) for name, tree in ambient.items()}
    try:
        _impose({**_RARE, **wanted})
        with (
            torch.inference_mode() if ambient.get("inference_mode") else contextlib.nullcontext(),
            _dispatching_below(ambient.get("dispatch_below")),
            compiled_autograd.compiled_autograd(bool(ambient.get("compiled_autograd"))),
        ):
            yield
    finally:
        _impose(before)


def _impose(state: Mapping[str, Any]) -> None:
    for name, (get, impose) in STATE.items():
        if name in state and get() != state[name]:
            impose(state[name])


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"ambient state holds no {kind!r}, found {data!r:.60}")

"""Fake tensors: conversions from real ones, operators dispatched, cache outcomes.

Lives here: what a FakeTensorMode converts, runs, looks up
and remembers.  Not here: the symbols that this makes (`shape_env`), the nodes that it becomes
(`proxies`).

Whether an operator was served by the cache is read off the mode's own counters.  They stand still
while a hit is looked up; between the calls of nested operators they change for the innermost one
only, so each change is credited to the operator that was on top when it was seen.
"""

from __future__ import annotations

import sys
import threading
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchreel.events.fake_tensors import (
    FakeConversion,
    FakeDispatch,
    FakeFailure,
    FakeFallback,
    FakeMemo,
    FakeMismatch,
    MetaPropagation,
)
from torchreel.formats.deferred_values import DeferredValue
from torchreel.recorder.attach import PASS, AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.event_log.failures import Written

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_MODULE = "torch._subclasses.fake_tensor"
DISPATCH = AttachPoint(
    _MODULE, "FakeTensorMode.dispatch", "every operator under a fake mode, and its cache's counters"
)
CONVERT = AttachPoint(
    _MODULE, "FakeTensorConverter.from_real_tensor", "every conversion of a real tensor"
)
FALLBACK = AttachPoint(_MODULE, "run_fallback_kernel", "an operator without a fake kernel")
INFER = AttachPoint(
    _MODULE, "FakeTensorMode._maybe_infer_fake", "compares a fake kernel's result with a real one"
)
FUNCTORCH = AttachPoint(
    "torch._C._functorch", "is_functorch_wrapped_tensor", "tensors that are not to be looked into"
)
PROPAGATION = AttachPoint(
    "torch.distributed.tensor._sharding_prop",
    "ShardingPropagator._propagate_tensor_meta_non_cached",
    "operators that DTensor runs on fake tensors of whole sizes",
)
ATTACH_POINTS = (DISPATCH, CONVERT, FALLBACK, INFER, FUNCTORCH, PROPAGATION)

EVENTS: Events = {
    FakeDispatch: (DISPATCH,),
    FakeConversion: (CONVERT,),
    FakeMemo: (DISPATCH, CONVERT),
    FakeFailure: (DISPATCH, CONVERT),
    FakeFallback: (FALLBACK,),
    FakeMismatch: (INFER,),
    MetaPropagation: (PROPAGATION,),
}

_MEMOS = {
    "aten._local_scalar_dense.default": "item",
    "aten.item.default": "item",
    "aten.nonzero.default": "nonzero",
    "aten._unique2.default": "unique",
    "aten.unique_dim.default": "unique",
    "aten.unique_consecutive.default": "unique_consecutive",
}
"""Operators whose fake kernels leave a memo on their first argument (torch/_subclasses/fake_impls),
and the start of the attribute's name."""


QUERIES = frozenset(
    {
        "prim.device.default", "aten.size.default", "aten.stride.default",
        "aten.storage_offset.default",
    }
)  # fmt: skip
"""Operators that the mode answers from the tensor itself (_DISPATCH_META_HANDLERS)."""


_Memo = tuple[Any, Any, Any]
"""Expression, version, epoch."""


class _Running:
    """An operator under way: its outcome in the cache, as far as the counters show it."""

    __slots__ = ("memo", "op", "outcome", "reason")

    def __init__(self, op: str, memo: tuple[str, _Memo] | None) -> None:
        self.op = op
        self.outcome: str | None = None
        self.reason: str | None = None
        self.memo = memo


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[_Running] = []
        self.propagating = 0
        self.hits = self.misses = self.bypassed = 0
        self.bypasses: dict[str, int] = {}
        self.failed = Written()

    def look(self, mode: Any) -> None:
        """Credit the counts since the last look to the innermost operator."""
        top = self.running[-1]
        if mode.cache_hits != self.hits:
            top.outcome = "hit"
        elif mode.cache_misses != self.misses:
            top.outcome = "miss"
        else:
            self._look_for_bypass(mode, top)
        self.hits, self.misses = mode.cache_hits, mode.cache_misses

    def _look_for_bypass(self, mode: Any, top: _Running) -> None:
        total = sum(mode.cache_bypasses.values())
        if total == self.bypassed:
            return
        before, self.bypasses = self.bypasses, dict(mode.cache_bypasses)
        top.outcome, self.bypassed = "bypass", total
        top.reason = next((k for k, v in self.bypasses.items() if v != before.get(k, 0)), None)

    def start(self, mode: Any) -> None:
        """Note the counters as they are, before the outermost operator: other threads count too."""
        self.hits, self.misses = mode.cache_hits, mode.cache_misses
        total = sum(mode.cache_bypasses.values())
        if total != self.bypassed:
            self.bypassed, self.bypasses = total, dict(mode.cache_bypasses)


_here = _Thread()


@cache
def _describe() -> ModuleType:
    """Return the module `describe`, loaded at the first compile and kept: an import is slow."""
    from torchreel.recorder.event_log import describe

    return describe


def _before(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Running | object:
    mode, op = type(args[0]), _describe().op_name(args[1])
    if op in QUERIES or _here.propagating > 0:
        return PASS
    if _here.running:
        _here.look(mode)
    else:
        _here.start(mode)
    memo = _MEMOS.get(op)
    running = _Running(op, None if memo is None else (memo, _memo(_subject(args), memo)))
    _here.running.append(running)
    return running


def _dispatched(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    running: _Running | None,
    result: Any,
    error: BaseException | None,
) -> None:
    if running is None:
        return
    mode, op = args[0], running.op
    _settle(running, mode)
    described = None
    if error is not None:
        running.outcome, running.reason = "raised", type(error).__name__
        _note_failure(recorder, op, error, "dispatch")
        if not _here.running:
            _here.failed.begin()
    else:
        described = _describe().outline(result)
    recorder.note(
        FakeDispatch(
            outcome=running.outcome or "direct",
            reason=running.reason,
            result=described,
            depth=len(_here.running),
            epoch=mode.epoch,
        ),
        op,
    )
    if running.memo is not None:
        _note_memo(recorder, op, _subject(args), *running.memo)


def _settle(running: _Running, mode: Any) -> None:
    """Take an operator off the stack, and all above it that a failed hook has left."""
    while _here.running and _here.running[-1] is not running:
        _here.running.pop()
    if _here.running:
        _here.look(type(mode))
        _here.running.pop()


def _note_failure(recorder: Recorder, name: str, error: BaseException, during: str) -> None:
    """Note an exception once, at the innermost operator: it passes all those around it."""
    if not isinstance(error, Exception) or error in _here.failed:
        return
    _here.failed.add(error)
    recorder.note(
        FakeFailure(exception=type(error).__name__, message=str(error), during=during), name
    )


def _subject(args: tuple[Any, ...]) -> Any:
    """Return the first argument of the operator in a call of `dispatch(self, func, types,
    args)`.
    """
    operands = args[3] if len(args) > 3 else ()
    return operands[0] if operands else None


def _memo(tensor: Any, memo: str) -> _Memo:
    """Return (expression, version, epoch) of a memo, read past the property that voids it."""
    describe = _describe()
    name = f"_{memo}_memo"
    value = getattr(tensor, name, None)
    if value is None:
        return None, None, None
    return (
        describe.size(value),
        getattr(tensor, f"{name}_vc", None),
        getattr(tensor, f"{name}_epoch", None),
    )


def _note_memo(recorder: Recorder, name: str, tensor: Any, memo: str, before: _Memo) -> None:
    value, version, epoch = _memo(tensor, memo)
    if value is not None:
        reused = (value, version, epoch) == before
        recorder.note(
            FakeMemo(memo=memo, reused=reused, value=value, version=version, epoch=epoch), name
        )


def is_propagating() -> bool:
    """Return True if this thread works a layout out for DTensor."""
    return _here.propagating > 0


def _propagates(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    before = _here.propagating
    _here.propagating = before + 1
    return before


def _propagated(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if isinstance(token, int):
        _here.propagating = token
    if recorder.spans.here.stack:  # in a compile: it is done in eager mode as well
        recorder.note(MetaPropagation(), _describe().op_name(args[1].op))


def _find(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if the converter knows the tensor already."""
    return args[0]._get_memo(args[2]) is not None


def _converted(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    memo: bool | None,
    result: Any,
    error: BaseException | None,
) -> None:
    describe = _describe()
    tensor = args[2]
    name = type(tensor).__name__
    if error is not None:
        _note_failure(recorder, name, error, "conversion")
        return
    describer = args[0].meta_converter.describer
    constant = args[3] if len(args) > 3 else kwargs.get("make_constant", False)
    real, base = _real(tensor, describer)
    source = kwargs.get("source")
    recorder.note(
        FakeConversion(
            tensor=describer.lookup_tensor.get(tensor),
            describer=describer.id,
            memo=bool(memo),
            source=None if source is None else DeferredValue("source name", source),
            context=_context(kwargs.get("symbolic_context")),
            constant=bool(constant),
            base=base,
            real=real,
            fake=describe.result(result),
        ),
        name,
    )
    if not memo:
        _note_memo(recorder, name, result, "item", (None, None, None))


def _real(tensor: Any, describer: Any) -> tuple[object, int | None]:
    """Describe a tensor, and return the id of its base; (None, None) for a subclass."""
    import torch

    describe = _describe()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None, None
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None, None
    with torch._C.DisableTorchFunction():
        base = describer.lookup_tensor.get(tensor._base) if tensor._is_view() else None
    return describe.tensor(tensor), base


def _context(context: Any) -> object:
    """Return a symbolic context as data: a subclass has one for each of its inner tensors."""
    if context is None:
        return None
    found: dict[str, object] = {"type": type(context).__name__}
    for name in ("dynamic_sizes", "dynamic_strides", "constraint_sizes", "constraint_strides"):
        values = getattr(context, name, None)
        if values is not None and any(value is not None for value in values):
            found[name] = tuple([getattr(value, "name", value) for value in values])
    base, inner = (
        getattr(context, "view_base_context", None),
        getattr(context, "inner_contexts", {}),
    )
    if base is not None:
        found["base"] = _context(base)
    if inner:
        found["inner"] = {name: _context(value) for name, value in inner.items()}
    return found


def _fallback(recorder: Recorder, call: Call) -> Visit:
    describe = _describe()
    outcome = yield
    error, op = outcome.error, describe.op_name(call.argument(1, "func"))
    described = None if error is not None else describe.result(outcome.result)
    recorder.note(FakeFallback("ok" if error is None else type(error).__name__, described), op)


def _infer(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    describe = _describe()
    fake = describe.result(args[3]) if len(args) > 3 else None
    if isinstance(error, sys.modules[_MODULE].MetadataMismatchError):
        name, message = type(error).__name__, str(error)
        recorder.note(
            FakeMismatch(outcome=name, message=message, fake=fake), describe.op_name(args[1])
        )
    elif error is None and result[1]:
        recorder.note(
            FakeMismatch(outcome="replaced", message="", fake=fake), describe.op_name(args[1])
        )


PROBES = (
    Tap(DISPATCH, _dispatched, _before, flight=False),
    Tap(CONVERT, _converted, _find),
    Probe(FALLBACK, _fallback),
    Tap(INFER, _infer),
    Tap(PROPAGATION, _propagated, _propagates),
)

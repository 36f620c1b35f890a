"""ShapeEnv: every call that changes its state, and what it changed.

Lives here: when a ShapeEnv is looked at.  Not here:
what is noted of it (`shape_state`), what else there is of unbacked symbols, runtime asserts and
scalars (`scalars`), how the state is rebuilt (`torchreel.replay.shape_env.rebuild`).

Of a method that changes the state only the outermost call counts: the others are its parts.
Changes that come without a call (a context manager that freezes, a list that
`compute_unbacked_bindings` clears) are noted before the next call, at the end of a stage, and where
a checkpoint is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchreel.events.scalars import DataDependentError, KnownAssert
from torchreel.events.shape_env import ProducedGuards, ShapeEnvCheckpoint, ZeroOne
from torchreel.formats.deferred_values import DeferredValue
from torchreel.recorder.attach import PASS, AttachPoint, Probe, Tap
from torchreel.recorder.probes import scalars
from torchreel.recorder.probes.shape_events import EVENTS as EVENTS
from torchreel.recorder.probes.shape_points import (
    ASSERT,
    CALL_POINTS,
    CALLS,
    ERROR,
    INIT,
    NEW_SYMBOL,
    PRODUCE,
    REFINE,
    REPLACE,
)
from torchreel.recorder.probes.shape_registry import registry, shadow_of
from torchreel.recorder.probes.shape_state import Pending, Shadow
from torchreel.recorder.recorder import boundaries

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


# -- calls --------------------------------------------------------------------------------------


def _enter(recorder: Recorder, method: str, args: Args, kwargs: Kwargs) -> Shadow | None:
    """Begin a call that may change the state; None inside of another one."""
    env = args[0]
    shadow = shadow_of(recorder, env)
    if shadow.call is not None:
        return None
    if shadow.moved(env):
        shadow.look(recorder, env)
    shadow.call = Pending(method, args, kwargs)
    return shadow


def _leave(recorder: Recorder, shadow: Shadow | None, env: Any, reason: str = "") -> None:
    if shadow is None:
        return
    try:
        if shadow.moved(env):
            shadow.look(recorder, env, reason)
    finally:
        shadow.call = None


def _before(method: str) -> Callable[[Recorder, Args, Kwargs], object]:
    def before(recorder: Recorder, args: Args, kwargs: Kwargs) -> object:
        return _enter(recorder, method, args, kwargs) or PASS

    return before


def _after(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    _leave(recorder, token, args[0])


def _before_symbol(recorder: Recorder, args: Args, kwargs: Kwargs) -> Shadow | None:
    return _enter(recorder, "create_symbol", args, kwargs)


def _created_env(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    # The symbols of a `shapes_spec` have a ShapeEnv that holds nothing and refuses every question.
    if error is None and type(args[0]).__name__ != "_SpecShapeEnv":
        shadow_of(recorder, args[0])


def _created_symbol(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    try:
        if error is None and not result.args and result.is_number and result in (0, 1):
            _note_zero_one(recorder, args, kwargs, int(result))
    finally:
        _leave(recorder, token, args[0])


def _note_zero_one(recorder: Recorder, args: Args, kwargs: Kwargs, value: int) -> None:
    dynamic = args[3] if len(args) > 3 else kwargs.get("dynamic_dim")
    source = args[2] if len(args) > 2 else kwargs["source"]
    # Every tensor has an offset, and nearly every one is 0.
    offset = getattr(getattr(source, "prop", None), "name", "") == "STORAGE_OFFSET"
    if not offset and getattr(dynamic, "name", "DUCK") in ("DUCK", "DYNAMIC"):
        number = shadow_of(recorder, args[0]).number
        name, stack = DeferredValue("source name", source), recorder.user_stack()
        recorder.note(ZeroOne(env=number, source=name, value=value), stack=stack)


# -- what calls do on the way ---------------------------------------------------------------------


def _before_replacement(
    recorder: Recorder, args: Args, kwargs: Kwargs
) -> tuple[Shadow, Shadow | None]:
    outer = _enter(recorder, "_set_replacement", args, kwargs)
    return shadow_of(recorder, args[0]), outer


def _after_replacement(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    shadow, outer = token
    reason = str(args[3] if len(args) > 3 else kwargs.get("msg", ""))
    if outer is not None:
        _leave(recorder, outer, args[0], reason)
    elif shadow.moved(args[0]):
        shadow.look(recorder, args[0], reason)


def _before_range(
    recorder: Recorder, args: Args, kwargs: Kwargs
) -> tuple[Shadow, Shadow | None, object]:
    outer = _enter(recorder, "_update_var_to_range", args, kwargs)
    return shadow_of(recorder, args[0]), outer, _range(args, kwargs)


def _after_range(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    shadow, outer, old = token
    try:
        # Counts don't tell that a range has got another value.
        if _range(args, kwargs) is not old:
            shadow.look(recorder, args[0])
    finally:
        _leave(recorder, outer, args[0])


def _range(args: Args, kwargs: Kwargs) -> object:
    symbol = args[1] if len(args) > 1 else kwargs["symbol"]
    return args[0].var_to_range.get(symbol)


def _before_assert(recorder: Recorder, args: Args, kwargs: Kwargs) -> tuple[Shadow | None, int]:
    outer = _enter(recorder, "guard_or_defer_runtime_assert", args, kwargs)
    env = args[0]
    return outer, len(env.guards) + env.num_deferred_runtime_asserts


def _after_assert(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    outer, count = token
    env = args[0]
    try:
        if error is None and len(env.guards) + env.num_deferred_runtime_asserts == count:
            expr = args[1] if len(args) > 1 else kwargs["orig_expr"]
            message = str(args[2] if len(args) > 2 else kwargs.get("msg", ""))
            _note_known(recorder, shadow_of(recorder, env), expr, message, bool(result))
    finally:
        _leave(recorder, outer, env)


def _note_known(recorder: Recorder, shadow: Shadow, expr: Any, message: str, value: bool) -> None:
    """Note an assertion whose value is known: once, for the same ones are made over and over."""
    if expr.args and (expr, value) not in shadow.known:
        shadow.known.add((expr, value))
        recorder.note(
            KnownAssert(
                env=shadow.number, expr=DeferredValue("expr", expr), message=message, value=value
            )
        )


# -- results ------------------------------------------------------------------------------------


def _failed(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    if error is not None:
        return
    env, expr, unhinted = args[0], args[1], args[2]
    hints = {symbol.name: env.backed_var_to_val.get(symbol) for symbol in unhinted.free_symbols}
    recorder.note(
        DataDependentError(
            env=shadow_of(recorder, env).number,
            expr=DeferredValue("expr", expr),
            unhinted=DeferredValue("expr", unhinted),
            hints={
                name: DeferredValue("scalar", value)
                for name, value in hints.items()
                if value is not None
            },
            size_like=sorted(symbol.name for symbol in unhinted.free_symbols & env.size_like),
            message=str(result.args[0] if result.args else ""),
        ),
        type(result).__name__,
        stack=recorder.user_stack(),
    )


def _produced(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    if error is None:
        guards = tuple(tuple(helper.exprs) for helper in result)
        recorder.note(ProducedGuards(shadow_of(recorder, args[0]).number, guards))


def _boundary(recorder: Recorder, checkpoint: tuple[str, str, int] | None) -> None:
    """Note changes of ShapeEnvs outside of calls, where a stage ends or a checkpoint is taken."""
    for shadow in registry.recent(recorder):
        env = shadow.env()
        if env is not None and shadow.call is None:
            shadow.look(recorder, env)
    if checkpoint is not None:
        note_checkpoint(recorder, _current_env(), *checkpoint)


def note_checkpoint(recorder: Recorder, env: Any, entry: str, partition: str, ordinal: int) -> None:
    """Note that a checkpoint has this ShapeEnv as it is now, if there is one."""
    if env is not None:
        shadow = shadow_of(recorder, env)
        shadow.look(recorder, env)
        recorder.note(
            ShapeEnvCheckpoint(env=shadow.number, partition=partition, ordinal=ordinal), entry
        )


def _current_env() -> Any:
    guards = sys.modules.get("torch._guards")
    context = guards.TracingContext.try_get() if guards is not None else None
    return context.fake_mode.shape_env if context is not None and context.fake_mode else None


boundaries.append(_boundary)

ATTACH_POINTS: tuple[AttachPoint, ...] = (
    AttachPoint("torch._guards", "Source", "where a symbol comes from"),
    INIT, NEW_SYMBOL, ASSERT, REPLACE, REFINE, ERROR, PRODUCE, *CALL_POINTS,
    *scalars.ATTACH_POINTS,
)  # fmt: skip
PROBES: tuple[Probe | Tap, ...] = (
    Tap(INIT, _created_env),
    Tap(NEW_SYMBOL, _created_symbol, _before_symbol),
    Tap(ASSERT, _after_assert, _before_assert),
    Tap(REPLACE, _after_replacement, _before_replacement),
    Tap(REFINE, _after_range, _before_range),
    Tap(ERROR, _failed),
    Tap(PRODUCE, _produced),
    *(
        Tap(point, _after, _before(method))
        for method, point in zip(CALLS, CALL_POINTS, strict=True)
    ),
    *scalars.PROBES,
)

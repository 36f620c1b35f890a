"""Unbacked symbols, runtime asserts and symbolic scalars, where the pipeline handles them.

Lives here: bindings and rebinding, the insertion of asserts into graphs, Dynamo's symbolic ints and
floats, their tensorification.  Not here: what a ShapeEnv knows of them (`shape_env`).  A function
that others import by name is patched where they have it, as well as in its own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel.events.scalars import (
    InsertedAsserts,
    SymbolicScalar,
    Tensorify,
    UnbackedBindings,
    UnbackedRebind,
)
from torchreel.formats.deferred_values import DeferredValue
from torchreel.recorder.attach import AttachPoint, Probe, Tap
from torchreel.recorder.probes.shape_points import (
    COMPUTE_BINDINGS,
    INSERTION,
    REBINDING,
    TENSORIFY,
    WRAP_FLOAT,
    WRAP_INT,
)
from torchreel.recorder.probes.shape_registry import shadow_of

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

SPECIALIZED = AttachPoint(
    "torch._dynamo.symbolic_convert", "TensorifyState", "floats that can't become tensors"
)
ATTACH_POINTS = (
    SPECIALIZED,
    *COMPUTE_BINDINGS,
    *REBINDING,
    *INSERTION,
    TENSORIFY,
    WRAP_INT,
    WRAP_FLOAT,
)


def _argument(args: Args, kwargs: Kwargs, position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _number(recorder: Recorder, env: Any) -> int | None:
    return None if env is None else shadow_of(recorder, env).number


def _paths(bindings: dict[Any, Any]) -> dict[str, DeferredValue]:
    return {symbol.name: DeferredValue("path", tuple(path)) for symbol, path in bindings.items()}


def _bound(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    if result:
        env, peek = _argument(args, kwargs, 0, "shape_env"), _argument(args, kwargs, 3, "peek")
        stack = recorder.user_stack()
        recorder.note(
            UnbackedBindings(env=_number(recorder, env), bindings=_paths(result), peek=bool(peek)),
            stack=stack,
        )


def _rebound(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    node = _argument(args, kwargs, 1, "n")
    bindings = node.meta.get("unbacked_bindings")
    if bindings and node.op != "placeholder":
        number = _number(recorder, _argument(args, kwargs, 0, "shape_env"))
        recorder.note(UnbackedRebind(number, _paths(bindings)), node.name)


# -- runtime asserts ------------------------------------------------------------------------------


def _before_insertion(recorder: Recorder, args: Args, kwargs: Kwargs) -> set[str]:
    return {node.name for node in _argument(args, kwargs, 0, "gm").graph.nodes}


def _inserted(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    nodes = list(_argument(args, kwargs, 0, "gm").graph.nodes)
    added = tuple(_described(node) for node in nodes if node.name not in token)
    removed = token - {node.name for node in nodes}
    if added or removed:
        number = _number(recorder, _argument(args, kwargs, 1, "shape_env"))
        # Of an exported program torch adds the modules of the first call, by their addresses.
        name = str(_argument(args, kwargs, 2, "name")).partition(": {")[0]
        recorder.note(InsertedAsserts(env=number, added=added, removed=sorted(removed)), name)


def _described(node: Any) -> dict[str, str]:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return {"name": node.name, "target": target or str(node.target), "args": str(node.args)}


# -- scalars ------------------------------------------------------------------------------------


def _wrapped(kind: str) -> Any:
    def after(
        recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
    ) -> None:
        if error is not None:
            return
        node = getattr(getattr(result, "sym_num", None), "node", None)
        value = None if node is not None else _constant(result)
        expr = None if node is None else DeferredValue("expr", node._expr)
        source = DeferredValue("source", args[0].source)
        recorder.note(
            SymbolicScalar(source=source, type=kind, expr=expr, value=value),
            kind,
            stack=recorder.user_stack(),
        )

    return after


def _constant(variable: Any) -> float | None:
    value = getattr(variable, "value", None)
    return value if isinstance(value, (int, float)) else None


def _before_tensorify(
    recorder: Recorder, args: Args, kwargs: Kwargs
) -> tuple[tuple[DeferredValue, ...], set[str]]:
    from torch._dynamo.symbolic_convert import TensorifyState

    return _floats(_argument(args, kwargs, 0, "gm")), set(TensorifyState.force_specializations)


def _tensorified(
    recorder: Recorder, args: Args, kwargs: Kwargs, token: Any, result: Any, error: Any
) -> None:
    from torch._dynamo.symbolic_convert import TensorifyState

    before, forced = token
    if not before:
        return
    specialized = sorted(set(TensorifyState.force_specializations) - forced)
    after = _floats(_argument(args, kwargs, 0, "gm"))
    recorder.note(
        Tensorify(before=before, after=after, specialized=specialized, restart=error is not None)
    )


def _floats(gm: Any) -> tuple[DeferredValue, ...]:
    values = (node.meta.get("val") for node in gm.graph.nodes)
    return tuple(
        DeferredValue("expr", value.node._expr)
        for value in values
        if type(value).__name__ == "SymFloat"
    )


PROBES: tuple[Probe | Tap, ...] = (
    *(Tap(point, _bound) for point in COMPUTE_BINDINGS),
    *(Tap(point, _rebound) for point in REBINDING),
    *(Tap(point, _inserted, _before_insertion) for point in INSERTION),
    Tap(TENSORIFY, _tensorified, _before_tensorify),
    Tap(WRAP_INT, _wrapped("int")),
    Tap(WRAP_FLOAT, _wrapped("float")),
)

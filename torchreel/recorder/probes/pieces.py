"""Pieces: graphs that a backend hands to Inductor or AOTAutograd apart.

Lives here: which call of `standalone_compile`, `compile_fx` or AOTAutograd is a compile of its own,
its row, its `graph` checkpoint, its artifact.  Not here: what happens inside of it (`aot`,
`inductor`).

A backend that compiles the graph it was given, once, is the ordinary case: that is no piece. One
that splits the graph (vLLM, SGLang, DDPOptimizer, regional compilation) calls one of these entries
for each part, perhaps once for a range of sizes and once for one size, perhaps only when the part
runs.  A program that calls one itself, outside of any compile, gets a compile of that too.  The
entries call each other downwards: `standalone_compile`, `compile_fx`, AOTAutograd.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.events.backends import PieceArtifact, PieceStart
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.event_log.spans import CompileEntry, GraphCall, Span, current_context
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes import bundles
from torchreel.store.addressing import UNNAMED

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

STANDALONE = AttachPoint(
    "torch._inductor.standalone_compile", "standalone_compile", "a graph that is compiled apart"
)
COMPILE_FX = AttachPoint("torch._inductor.compile_fx", "compile_fx", "the same, by Inductor itself")
MAIN = AttachPoint(
    "torch._inductor.compile_fx",
    "_compile_fx_main",
    "its graph and inputs with options applied; a program may hold `compile_fx` itself already",
)
BACKEND = AttachPoint(
    "torch._dynamo.backends.common", "AotAutograd.__call__", "a graph that AOTAutograd gets alone"
)
AOT = AttachPoint("torch._functorch.aot_autograd", "aot_module_simplified", "the same")
MADE = AttachPoint("torch.fx.graph_module", "GraphModule.__init__", "names of the parts")
ADD = AttachPoint("torch.fx.graph_module", "GraphModule.add_submodule", "names of the parts")
COPY = AttachPoint("torch.fx.graph_module", "GraphModule.__deepcopy__", "names of copies of parts")
ATTACH_POINTS = (STANDALONE, COMPILE_FX, MAIN, BACKEND, AOT, MADE, ADD, COPY)

EVENTS: Events = {
    PieceStart: (STANDALONE, COMPILE_FX, AOT),
    PieceArtifact: (STANDALONE,),
}

_STANDALONE, _FX, _MAIN, _AOT = range(4)
"""Levels of entries; one that is reached from a level above it belongs to the same call."""


class _Entry(NamedTuple):
    """One of the entries, and the arguments that hold the graph module and its inputs."""

    level: int
    name: str
    graph: str
    inputs: str
    first: int = 0

    def arguments(self, call: Call) -> tuple[Any, Sequence[Any]]:
        """Return the graph module and its inputs.

        If inputs are lists, torch wraps the graph module in one that takes their items.
        """
        from torchreel.torch_compat.fx import within_wrapper

        gm = within_wrapper(call.argument(self.first, self.graph))
        return gm, call.argument(self.first + 1, self.inputs) or ()


_ENTRIES: Mapping[AttachPoint, _Entry] = {
    STANDALONE: _Entry(_STANDALONE, "standalone_compile", "gm", "example_inputs"),
    COMPILE_FX: _Entry(_FX, "compile_fx", "model_", "example_inputs_"),
    MAIN: _Entry(_MAIN, "compile_fx", "model_", "example_inputs_"),
    BACKEND: _Entry(_AOT, "aot_autograd", "gm", "example_inputs", first=1),
    AOT: _Entry(_AOT, "aot_autograd", "mod", "args"),
}


class _Known(NamedTuple):
    """A graph module that was seen: the name of the part, and whose part it is."""

    owner: weakref.ref[Any]
    name: str
    parent: CompileEntry | None


_known: dict[int, _Known] = {}
"""By the id of the graph module, because it can't be hashed by what it is; as long as it lives."""


def _remember(gm: object, name: str = "", parent: CompileEntry | None = None) -> None:
    key, before = id(gm), _find(gm)
    if before is not None:
        name, parent = name or before.name, parent or before.parent
    _known[key] = _Known(weakref.ref(gm, lambda _: _known.pop(key, None)), name, parent)


def _find(gm: object) -> _Known | None:
    found = _known.get(id(gm))
    return found if found is not None and found.owner() is gm else None


def _around(entry: _Entry) -> Callable[[Recorder, Call], Visit]:
    def visit(recorder: Recorder, call: Call) -> Visit:
        gm, inputs = entry.arguments(call)
        span = _begin(recorder, entry, call, gm, inputs)
        top = recorder.spans.top
        state = top.entry.call if top is not None else None
        before = state.level if state is not None else None
        if top is not None and state is not None:
            state.level, state.graph = entry.level, id(gm)
            if entry.level >= _MAIN and not top.entry.checkpoints and top.entry.is_piece:
                _take(recorder, entry, call, gm, inputs)
        outcome = yield
        if state is not None:
            state.level, state.is_over = before, state.is_over or before is None
        if span is not None:
            _note_artifact(recorder, outcome.result)
            recorder.leave(span, outcome.error)

    return visit


def _begin(
    recorder: Recorder, entry: _Entry, call: Call, gm: Any, inputs: Sequence[Any]
) -> Span | None:
    """Open a compile of its own for this call; None where it belongs to the one under way."""
    top, known = recorder.spans.top, _find(gm)
    if top is None:
        parent = known.parent if known is not None else None
    elif _belongs(top.entry.call, entry.level, gm):
        return None
    else:
        parent = top.entry
    if parent is None and not _is_alone():
        return None
    name, sizes = _name(gm, known), _sizes(gm, inputs)
    outer = parent.frame if parent is not None else {}
    frame = {**outer, "frame_name": _label(name, sizes), "backend": entry.name}
    if parent is not None:
        piece = recorder.add_part(parent, **frame)
    else:
        piece = recorder.add_compile(UNNAMED, next(recorder.spans.unnamed), **frame)
    piece.frame, piece.call, piece.is_piece = frame, GraphCall(id(gm)), True
    if parent is not None:
        _remember(gm, parent=parent)
    span = recorder.enter("pre_grad", "", piece)
    dynamic = call.kwargs.get("dynamic_shapes")
    recorder.note(
        PieceStart(call=entry.name, submodule=name, dynamic_shapes=dynamic, sizes=sizes), name
    )
    return span


def _is_alone() -> bool:
    """Return True if a program calls the entry outside of any compile, for itself."""
    from torchreel.torch_compat.inductor.code_generation import is_aot_compilation

    return current_context() is None and not is_aot_compilation()


def _belongs(call: GraphCall | None, level: int, gm: object) -> bool:
    """Return True if an entry that is reached now goes on with the graph of a compile."""
    if call is None or call.is_over:
        return False
    if call.level is None:
        return call.is_any or id(gm) == call.graph
    # torch's entries call themselves with the same graph, once options are applied.
    return level > call.level or (level == call.level and (level < _AOT or id(gm) == call.graph))


def _name(gm: Any, known: _Known | None) -> str:
    """Return the name of the part in the graph that was split, or of its class, where it has
    one.
    """
    if known is not None and known.name:
        return known.name
    name = type(gm).__name__
    return "" if name == "GraphModule" else name


def _label(name: str, sizes: Mapping[str, object]) -> str:
    """Return the label of a piece in listings: `submod_0 [s77=4]`, `submod_0 [s77=2..]`."""
    given = ", ".join(f"{symbol}={_spelled(size)}" for symbol, size in sizes.items())
    return f"{name or 'piece'} [{given}]" if given else name or "piece"


def _spelled(size: object) -> str:
    if not isinstance(size, tuple):
        return str(size)
    return "..".join("" if bound is None else str(bound) for bound in size)


def _sizes(gm: Any, inputs: Sequence[Any]) -> dict[str, object]:
    from torchreel.formats.checkpoints import split_graphs
    from torchreel.torch_compat.tensors.fake_tensors import no_dispatch

    if not _is_graph(gm):
        return {}
    with fail_open("sizes of a piece"), no_dispatch():
        return {str(symbol): size for symbol, size in split_graphs.sizes_of(gm, inputs)}
    return {}


def _take(recorder: Recorder, entry: _Entry, call: Call, gm: Any, inputs: Sequence[Any]) -> None:
    """Take the checkpoint of a piece, at the entry of Inductor or of AOTAutograd alone."""
    from torchreel.formats.checkpoints import split_graphs

    with fail_open("checkpoint of a piece"):
        if not recorder.wants_checkpoint or not _is_graph(gm):
            return
        if entry.level == _MAIN:
            doc = split_graphs.inductor_checkpoint(gm, inputs, _arguments(call, _MAIN_NAMES))
        else:
            doc = split_graphs.aot_checkpoint(gm, inputs, _settings(call))
        recorder.add_checkpoint(
            bundles.with_objects(recorder, doc, more=bundles.functions_of(doc, gm)), "dynamo"
        )


def _is_graph(gm: object) -> bool:
    """Return False for a module that AOTAutograd has still to trace: it has no graph to keep."""
    from torch.fx import GraphModule

    return isinstance(gm, GraphModule)


_MAIN_NAMES = ("model_", "example_inputs_", "inner_compile", "ignore_shape_env")


def _arguments(call: Call, names: Sequence[str]) -> dict[str, Any]:
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def _settings(call: Call) -> dict[str, Any]:
    """Return the keyword arguments of AOTAutograd, of a backend that holds them or as it is
    called.
    """
    names = ("mod", "args", "fw_compiler", "bw_compiler", "partition_fn", "decompositions")
    held = getattr(call.args[0], "kwargs", None) if call.args else None
    return dict(held) if isinstance(held, dict) else _arguments(call, names)


def _note_artifact(recorder: Recorder, result: Any) -> None:
    """Note the cache keys of the artifact that standalone_compile returned."""
    artifacts = getattr(result, "_artifacts", None)
    if not isinstance(artifacts, tuple):
        return
    with fail_open("artifact"):
        data, info = artifacts
        recorder.note(
            PieceArtifact(
                aot_autograd=list(info.aot_autograd_artifacts),
                inductor=list(info.inductor_artifacts),
                bytes=len(data),
            )
        )


def _made(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    """Note the submodules of a graph module as its parts (`split_module` makes such a one)."""
    from torch.fx import GraphModule

    if error is None:
        for name, part in args[0]._modules.items():
            if isinstance(part, GraphModule):
                _remember(part, name)


def _added(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None and len(args) == 3:
        _remember(args[2], str(args[1]))


def _copied(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    known = _find(args[0])
    if error is None and known is not None:
        _remember(result, known.name, known.parent)


PROBES = (
    *(Probe(point, _around(entry)) for point, entry in _ENTRIES.items()),
    Tap(MADE, _made),
    Tap(ADD, _added),
    Tap(COPY, _copied),
)

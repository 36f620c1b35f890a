"""Events of AOTAutograd: views, mutations, duplicates, and what it saves for the backward.

The probes that open its stages are in `aot`.  Lives here:
the events, and the compile of a backward that begins only when it is called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torchreel.events.aot import (
    AOTMetadata,
    DedupedArguments,
    LateBackward,
    Partition,
    SyntheticBases,
)
from torchreel.recorder import attach, failing_open
from torchreel.recorder.attach import AttachPoint, Call, Events, Visit, unwind
from torchreel.recorder.event_log.spans import current_context
from torchreel.recorder.failing_open import fail_open
from torchreel.torch_compat.patching import hide_frame
from torchreel.torch_compat.versions.names import has

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry, Span
    from torchreel.recorder.recorder import Recorder

_COMPILE = "torch._functorch._aot_autograd.graph_compile"
_WRAPPERS = "torch._functorch._aot_autograd.runtime_wrappers"
STATE = AttachPoint(
    "torch._functorch.aot_autograd", "create_aot_state", "runs the function for its metadata"
)
DEDUPE = AttachPoint(_WRAPPERS, "AOTDedupeWrapper.pre_compile", "inputs that are one tensor")
BASES = AttachPoint(
    _WRAPPERS, "AOTSyntheticBaseWrapper.pre_compile", "inputs that are views of one storage"
)
BASE_GROUPS = AttachPoint(
    _WRAPPERS, "AOTSyntheticBaseWrapper.base_groups", "which views are made from which base",
    since="2.13",
)  # fmt: skip
BW_COMPILER = AttachPoint(
    _WRAPPERS, "_AutogradBackwardCompiler.bw_compiler",
    "compiles a backward when it is first called; before, the one of `aot_config` does",
    since="2.13",
)  # fmt: skip
PARTITION = AttachPoint(_COMPILE, "_aot_stage2a_partition", "splits the joint graph")
BACKWARD = AttachPoint(_COMPILE, "_aot_stage2b_bw_compile", "the backward graph")
LATE = AttachPoint(
    _WRAPPERS,
    "_AutogradBackwardCompiler._prepare_lazy_backward_context",
    "a backward that is compiled when it is first called (only then: `get_or_compile`, around it, "
    "is on the path of every call)",
)

EVENTS: Events = {
    AOTMetadata: (STATE,),
    DedupedArguments: (DEDUPE,),
    SyntheticBases: (BASES,),
    Partition: (PARTITION,),
    LateBackward: (LATE,),
}

_INPUT_FLAGS = (
    "is_leaf", "requires_grad", "mutates_data", "mutates_metadata", "mutates_storage_metadata",
    "mutations_hidden_from_autograd", "mutations_under_no_grad_or_inference_mode",
    "mutation_inductor_storage_resize",
)  # fmt: skip
_CONFIG = (
    "is_export", "pre_dispatch", "no_tangents", "dynamic_shapes", "keep_inference_input_mutations",
    "num_params_buffers", "ignore_shape_env", "force_non_lazy_backward_lowering",
    "disable_functionalization",
)  # fmt: skip


def note_metadata(recorder: Recorder, state: Any) -> None:
    """Note the metadata that `create_aot_state` returned."""
    from torchreel.recorder.event_log import describe

    meta, config = state.fw_metadata, state.aot_config
    recorder.note(
        AOTMetadata(
            config={name: getattr(config, name) for name in _CONFIG},
            needs_autograd=state.needs_autograd,
            inputs=_inputs(state.flat_args_descs, state.flat_args, meta.input_info),
            outputs=[_output(info) for info in meta.output_info],
            intermediate_bases=meta.num_intermediate_bases,
            tangents=[
                (str(what), describe.result(tangent))
                for what, tangent in zip(
                    meta.traced_tangents_descs, meta.traced_tangents, strict=True
                )
            ],
            subclasses=_subclasses(meta),
            static_inputs=list(meta.static_input_indices),
            tokens=[str(effect) for effect in meta.tokens],
            grad_mode=meta.grad_enabled_mutation,
            deterministic=meta.deterministic,
        ),
        "training" if state.needs_autograd else "inference",
    )


def _callable(function: Any) -> str | None:
    """Return the qualified name of `function`, looking through `functools.partial`."""
    while function is not None and not hasattr(function, "__qualname__"):
        inner = getattr(function, "func", None)
        if inner is None:
            return type(function).__qualname__
        function = inner
    return None if function is None else f"{function.__module__}.{function.__qualname__}"


def _inputs(names: Iterable[Any], values: Iterable[Any], infos: Iterable[Any]) -> list[object]:
    from torchreel.recorder.event_log import describe

    return [
        (
            str(name),
            describe.result(value),
            info.mutation_type.name.lower(),
            [flag for flag in _INPUT_FLAGS if getattr(info, flag)],
        )
        for name, value, info in zip(names, values, infos, strict=True)
    ]


def _output(info: Any) -> dict[str, object]:
    return {
        "type": info.output_type.name,
        "raw_type": info.raw_type.__name__,
        "base": info.base_idx,
        "dynamic_dims": None if info.dynamic_dims is None else sorted(info.dynamic_dims),
        "requires_grad": info.requires_grad,
        "requires_grad_for_backward": info.requires_grad_for_backward,
        "view_replay": info.view_meta_sequence is not None,
    }


def _subclasses(meta: Any) -> dict[str, object]:
    """Return only the entries for subclasses, by position."""
    groups = {
        "inputs": meta.subclass_inp_meta,
        "outputs": meta.subclass_fw_graph_out_meta,
        "tangents": meta.subclass_tangent_meta,
    }
    found = {
        name: {index: _subclass(item) for index, item in enumerate(items) if _is_subclass(item)}
        for name, items in groups.items()
    }
    return {name: items for name, items in found.items() if items}


def _is_subclass(item: Any) -> bool:
    return hasattr(item, "attrs")


def _subclass(item: Any) -> dict[str, object]:
    from torchreel.recorder.event_log import describe

    kind = item.original_subclass_type or type(item.original_subclass)
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "start": item.flat_tensor_start_idx,
        "count": item.arg_count,
        "attributes": {
            name: _subclass(inner) if _is_subclass(inner) else getattr(inner, "unwrapped_idx", None)
            for name, inner in item.attrs.items()
        },
        "sizes": describe.sizes(item.outer_size),
        "strides": describe.sizes(item.outer_stride),
    }


def dedupe(recorder: Recorder, call: Call) -> Visit:
    """Stand around `AOTDedupeWrapper.pre_compile`."""
    outcome = yield
    wrapper = call.args[0]
    if outcome.error is None and wrapper.needs_post_compile:
        kept, positions = list(wrapper.keep_arg_mask), list(wrapper.add_dupe_map)
        recorder.note(DedupedArguments(kept, positions), entry=recorder.entry_here("joint"))


def synthetic_bases(recorder: Recorder, call: Call) -> Visit:
    """Stand around `AOTSyntheticBaseWrapper.pre_compile`."""
    outcome = yield
    wrapper = call.args[0]
    if outcome.error is None and wrapper.needs_post_compile:
        if has(wrapper, BASE_GROUPS):
            bases, others = wrapper.base_groups, wrapper.other_arg_indices
        else:
            bases, others = _merged(_free_variable(outcome.result[0], "synthetic_base_info"))
        recorder.note(
            SyntheticBases(
                bases=[(base, tuple(views)) for base, views in bases.items()],
                others=list(others),
                metadata_mutations=list(wrapper.aliased_arg_idx_with_metadata_mutations),
            ),
            entry=recorder.entry_here("joint"),
        )


def _merged(positions: Iterable[Any]) -> tuple[dict[int, list[int]], list[int]]:
    """Sort inputs into bases with their views and others, as torch has done since 2.13.

    A position is the new position of the input, or a tuple with the position of its base first.
    """
    bases: dict[int, list[int]] = {}
    others: list[tuple[int, int]] = []
    for index, position in enumerate(positions):
        if isinstance(position, int):
            others.append((position, index))
        else:
            bases.setdefault(position[0], []).append(index)
    return bases, [index for _, index in sorted(others)]


def _free_variable(function: Any, name: str) -> Any:
    """Find a free variable of a function, or of the functions that it calls by such names."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        return cells[name].cell_contents
    inner = (cell.cell_contents for cell in cells.values())
    return next(
        found
        for value in inner
        if isinstance(value, FunctionType)
        and value.__qualname__.startswith("AOTSynthetic")
        and (found := _free_variable(value, name)) is not None
    )


def note_partition(recorder: Recorder, call: Call, result: Any) -> None:
    """Note the partition that `_aot_stage2a_partition` returned."""
    forward, backward, number, _, detached, _ = result
    outputs = forward.graph.find_nodes(op="output")[0].args[0]
    saved = outputs[len(outputs) - number :]
    tensors, symbols, others = _saved(saved)
    partitioner, meta = call.argument(5, "partition_fn"), call.argument(3, "fw_metadata")
    computed = {node.name for node in forward.graph.nodes if node.op == "call_function"}
    again = [node.name for node in backward.graph.nodes if node.name in computed]
    recorder.note(
        Partition(
            saved=tensors,
            symbols=symbols,
            others=others,
            recomputed=[name for name in again if name not in {node.name for node in saved}],
            donated=None if meta.bw_donated_idxs is None else list(meta.bw_donated_idxs),
            detached=list(detached),
            nodes=(len(forward.graph.nodes), len(backward.graph.nodes)),
        ),
        _callable(partitioner) or "",
    )


def _saved(nodes: Iterable[Any]) -> tuple[list[object], list[object], list[str]]:
    import torch

    from torchreel.recorder.event_log import describe

    tensors: list[object] = []
    symbols: list[object] = []
    others: list[str] = []
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            tensors.append((node.name, describe.result(value)))
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            symbols.append((node.name, describe.size(value)))
        else:
            others.append(node.name)
    return tensors, symbols, others


# Which compile a backward belongs to that has yet to be compiled; by id, for it can't be hashed.
_expected: dict[int, tuple[weakref.ref[Any], CompileEntry]] = {}


def expect_backward(info: Any, entry: CompileEntry) -> None:
    """Remember the compile of a backward: when it is called, nothing else may identify it."""
    key = id(info)
    _expected[key] = (weakref.ref(info, lambda _: _expected.pop(key, None)), entry)


# Which compile the autograd function of a graph belongs to, also where a cache had both graphs.
_functions: dict[int, tuple[weakref.ref[Any], CompileEntry]] = {}


def autograd_function(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    """Remember the compile of an autograd function that AOTAutograd made, by its AOTConfig."""
    config = getattr(args[0], "aot_config", None) if args else kwargs.get("aot_config")
    is_known = recorder.spans.top is not None or current_context() is not None
    # Outside of Dynamo its stages are over by now, and the next compile has not begun.
    entry = recorder.entry_here() if is_known else recorder.spans.here.unnamed
    if config is not None and error is None and entry is not None:
        key = id(config)
        known = weakref.ref(config, lambda _: _functions.pop(key, None))
        _functions[key] = known, entry


def of_backward(compiler: Any) -> CompileEntry | None:
    """Return the compile that the backward of an autograd function belongs to; None for one not
    known.
    """
    config = getattr(compiler, "aot_config", None)
    known = _functions.get(id(config))
    return known[1] if known is not None and known[0]() is config else None


def late_backward(recorder: Recorder, call: Call) -> Visit:
    """Stand around the last step before a backward is compiled at its first call."""
    outcome = yield
    compiler = call.args[0]
    known = _expected.get(id(compiler.lazy_backward_info))
    if outcome.error is not None or known is None:
        return
    entry = known[1]
    once = bool(call.argument(1, "saved_tensors_use_once"))
    recorder.note(LateBackward(once), entry=entry)
    owner = compiler if has(compiler, BW_COMPILER) else compiler.aot_config
    if owner.bw_compiler is not None:
        original = owner.bw_compiler
        owner.bw_compiler = partial(_compile_backward, owner, entry, original)


def _compile_backward(
    owner: Any, entry: CompileEntry, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Compile a backward at its first call, in place of its compiler, and return the result."""
    owner.bw_compiler = original
    recorder = attach.active()
    span = None if recorder is None or recorder.busy else _enter(recorder, entry)
    try:
        result = original(*args, **kwargs)
    except BaseException as error:
        _leave(recorder, span, error)
        hide_frame(error)
        raise
    _leave(recorder, span, None)
    return result


def _enter(recorder: Recorder, entry: CompileEntry) -> Span | None:
    depth = len(recorder.spans.here.stack)
    try:
        with fail_open(str(LATE)):
            failing_open.check(str(LATE))
            return recorder.enter("backward", "backward", entry)
    except BaseException as error:
        unwind(recorder, depth, str(LATE), error)
        raise
    return None


def _leave(recorder: Recorder | None, span: Span | None, error: BaseException | None) -> None:
    if recorder is not None and span is not None:
        with fail_open(str(LATE)):
            recorder.leave(span, error)

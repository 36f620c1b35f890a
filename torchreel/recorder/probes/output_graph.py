"""OutputGraph: what Dynamo makes of a frame besides the graph itself.

Lives here: the inputs of the graph and where they come from, those found unused, side effects,
hooks and random calls, names put into the program's globals, the bytecode before and after.  Not
here: the graph (the checkpoint of `dynamo`), guards (`guards`).
"""

from __future__ import annotations

import dis
import re
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchreel.events.output_graph import (
    Bytecode,
    GraphInput,
    InputSources,
    InstalledGlobal,
    SideEffect,
    SubgraphCompile,
    TensorHook,
    UnusedInput,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.probes.bytecode import printable
from torchreel.recorder.probes.guards import describe, type_name

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry
    from torchreel.recorder.recorder import Recorder

_GRAPH = "torch._dynamo.output_graph"
SUBGRAPH = AttachPoint(
    _GRAPH, "OutputGraph.compile_subgraph", "why the graph ends, and its random calls"
)
UNUSED = AttachPoint(
    _GRAPH, "OutputGraph.remove_unused_graphargs", "inputs that nothing uses, before and after"
)
TENSORIFIED = AttachPoint(
    _GRAPH,
    "OutputGraph.remove_tensorify_specialized_graphargs",
    "floats that an earlier attempt specialised; the inputs that are left",
)
EFFECTS = AttachPoint(
    "torch._dynamo.side_effects",
    "SideEffects.codegen_update_mutated",
    "the side effects that the new bytecode carries out",
)
BACKWARD_STATE = AttachPoint(
    _GRAPH, "OutputGraph.add_backward_state_hook", "hooks that the backward will run"
)
GLOBAL = AttachPoint(
    _GRAPH, "OutputGraph.install_global_unsafe", "every name that goes into the frame's globals"
)
REWRITE = AttachPoint(
    "torch._dynamo.convert_frame", "transform_code_object", "one attempt at a frame, from outside"
)
ATTACH_POINTS = (SUBGRAPH, UNUSED, TENSORIFIED, EFFECTS, BACKWARD_STATE, GLOBAL, REWRITE)

EVENTS: Events = {
    SubgraphCompile: (SUBGRAPH,),
    GraphInput: (TENSORIFIED,),
    UnusedInput: (UNUSED, TENSORIFIED),
    InputSources: (TENSORIFIED,),
    SideEffect: (EFFECTS,),
    TensorHook: (EFFECTS, BACKWARD_STATE),
    InstalledGlobal: (GLOBAL, REWRITE),
    Bytecode: (REWRITE,),
}

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _subgraph(recorder: Recorder, call: Call) -> Visit:
    graph, reason = call.args[0], call.argument(2, "reason")
    calls = tuple(_random_call(*item) for item in graph.random_calls)
    stack = recorder.user_stack(reason.user_stack or ())
    recorder.note(
        SubgraphCompile(reason=reason.reason, graph_break=reason.graph_break, random_calls=calls),
        stack=stack,
    )
    yield


def _random_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Return a call of the random module: torch allows only constants there."""
    given = [*args, *kwargs.values()]
    return function.__name__, tuple(
        item if isinstance(item, (int, float)) else None for item in given
    )


def _placeholders(graph: Any) -> dict[str, tuple[Any, str | None, str]]:
    """Return the inputs by name: Source, expression, class."""
    found = {}
    for node in graph.placeholders:
        source = node.meta["grapharg"].source if "grapharg" in node.meta else None
        kind = type_name(node.type) if isinstance(node.type, type) else str(node.type)
        found[node.name] = (source, None if source is None else source.name, kind)
    return found


def _note_removed(
    recorder: Recorder, before: dict[str, tuple[Any, str | None, str]], graph: Any, why: str
) -> None:
    left = {node.name for node in graph.placeholders}
    for position, (name, (_, expression, kind)) in enumerate(before.items()):
        if name not in left:
            recorder.note(
                UnusedInput(position=position, expression=expression, type=kind, why=why), name
            )


def _unused(recorder: Recorder, call: Call) -> Visit:
    graph = call.args[0]
    before = _placeholders(graph)
    outcome = yield
    if outcome.error is None:
        _note_removed(recorder, before, graph, "unused")


def _tensorified(recorder: Recorder, call: Call) -> Visit:
    graph = call.args[0]
    before = _placeholders(graph)
    outcome = yield
    if outcome.error is None:
        _note_removed(recorder, before, graph, "specialised")
        _note_inputs(recorder, graph)


def _note_inputs(recorder: Recorder, graph: Any) -> None:
    from torchreel.formats.sources import SourceTable

    table, found = SourceTable(), _placeholders(graph)
    for position, node in enumerate(graph.placeholders):
        source, expression, kind = found[node.name]
        place = None if source is None else table.add(source)
        argument = node.meta.get("grapharg")
        as_tensor = bool(getattr(argument, "pass_arg_as_tensor", False))
        recorder.note(
            GraphInput(
                position=position,
                expression=expression,
                source=place,
                type=kind,
                as_tensor=as_tensor,
                users=len(node.users),
            ),
            node.name,
        )
    recorder.note(InputSources(table.rows))


def _effects(recorder: Recorder, call: Call) -> Visit:
    """Note only the pass that is kept: Dynamo generates the code twice to count the uses."""
    effects = call.args[0]
    if call.argument(2, "log_side_effects"):
        for variable in effects._get_modified_vars():
            _note_effect(recorder, effects, variable)
        for tensor, hook, _, name in effects.tensor_hooks.values():
            recorder.note(
                TensorHook(
                    source=tensor.source,
                    hook=type(hook).__name__,
                    hook_source=hook.source,
                    where="side effect",
                ),
                name,
            )
    yield


def _note_effect(recorder: Recorder, effects: Any, variable: Any) -> None:
    attributes = tuple(effects.store_attr_mutations.get(variable) or ())
    mutation = type(variable.mutation_type).__name__
    if mutation.endswith("New") and not attributes:
        return  # Dynamo counts every new object among them: it is made anew, not changed.
    stacks = effects.mutation_user_stacks.get(variable) or ()
    recorder.note(
        SideEffect(
            source=variable.source,
            type=_class_of(variable),
            attributes=attributes,
            mutation=mutation,
            places=len(stacks),
        ),
        type(variable).__name__,
        stack=recorder.user_stack(stacks[-1]) if stacks else None,
    )


def _class_of(variable: Any) -> str | None:
    """Return the class of the object that a variable stands for, if that takes no call."""
    found = vars(variable).get("value_type") or vars(variable).get("user_cls")
    return type_name(found) if isinstance(found, type) else None


def _backward_state(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        hook = args[1] if len(args) > 1 else kwargs["hook"]
        recorder.note(
            TensorHook(
                source=None,
                hook=type(hook).__name__,
                hook_source=hook.source,
                where="backward state",
            ),
            result[0],
        )


def _installed(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        name, value = (*args[1:], *kwargs.values())
        recorder.note(InstalledGlobal(describe(value), False), name)


def note_rewritten(
    recorder: Recorder, entry: CompileEntry, original: CodeType, result: tuple[CodeType, Any]
) -> None:
    """Note the bytecode of a frame and its replacement, with the modules that it imports."""
    generated, tracer_output = result
    for alias, module in tracer_output.output_graph.import_sources.items():
        recorder.note(InstalledGlobal(module, True), alias, entry=entry)
    for name, code in (("original", original), ("generated", generated)):
        _note_bytecode(recorder, entry, name, code)


def _note_bytecode(recorder: Recorder, entry: CompileEntry, name: str, code: CodeType) -> None:
    recorder.note(
        Bytecode(
            function=code.co_name,
            size=len(code.co_code),
            names=code.co_names,
            stack_size=code.co_stacksize,
        ),
        name,
        payload=_ADDRESS.sub("", dis.Bytecode(printable(code)).dis()),
        entry=entry,
    )


PROBES = (
    Probe(SUBGRAPH, _subgraph),
    Probe(UNUSED, _unused),
    Probe(TENSORIFIED, _tensorified),
    Probe(EFFECTS, _effects),
    Tap(BACKWARD_STATE, _backward_state),
    Tap(GLOBAL, _installed),
)

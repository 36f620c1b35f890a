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

from torchreel.recorder.attach import AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.kinds import Kind
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

COMPILE = Kind(
    name="output_graph.compile",
    system=2,
    meaning="A graph is complete and goes to the backend; the stack says where tracing ended.",
    fields={
        "reason": "why it ends here, in torch's words",
        "graph_break": "whether the frame goes on after it",
        "random_calls": "functions of `random` that the new bytecode calls, with their arguments",
    },
    points=(SUBGRAPH,),
    pages=False,
    probe="output_graph",
)
INPUT = Kind(
    name="output_graph.input",
    system=2,
    meaning="An input of the graph, in order; the name is its placeholder.",
    fields={
        "position": "its place among the inputs",
        "expression": "where it comes from, as Python; null when torch makes it up",
        "source": "its Source, by its place in `output_graph.sources`",
        "type": "class of the value",
        "as_tensor": "whether a Python number is passed as a tensor",
        "users": "number of nodes that use it",
    },
    points=(TENSORIFIED,),
    exact=True,
    probe="output_graph",
)
UNUSED_INPUT = Kind(
    name="output_graph.unused_input",
    system=2,
    meaning="An input was traced, and taken out again; the name is its placeholder.",
    fields={
        "position": "its place among the inputs as they were before",
        "expression": "where it comes from, as Python",
        "type": "class of the value",
        "why": "'unused', or 'specialised' (a float that could not be made a tensor)",
    },
    points=(UNUSED, TENSORIFIED),
    probe="output_graph",
)
SOURCES = Kind(
    name="output_graph.sources",
    system=2,
    meaning="The Sources of the inputs (`torchreel.formats.sources.expand_source`).",
    fields={"rows": "class and fields; `{at: row}` is a Source in another row"},
    points=(TENSORIFIED,),
    exact=True,
    probe="output_graph",
)
SIDE_EFFECT = Kind(
    name="output_graph.side_effect",
    system=2,
    meaning="The new bytecode changes an object as the frame would have; the name is Dynamo's "
    "class for it, the stack the last place that changes it.",
    fields={
        "source": "Source of the object; null for one that the frame makes itself",
        "type": "class of the object, where Dynamo knows it",
        "attributes": "names of the attributes that change, in order; empty when the value does",
        "mutation": "Dynamo's class of mutation",
        "places": "number of places that change it",
    },
    points=(EFFECTS,),
    probe="output_graph",
)
HOOK = Kind(
    name="output_graph.hook",
    system=2,
    meaning="A hook is put on a tensor; the name is the method that does it.",
    fields={
        "source": "Source of the tensor; null in the backward state",
        "hook": "Dynamo's class for the hook",
        "hook_source": "Source of the hook, if it has one",
        "where": "'side effect' (after the graph), or 'backward state' (the backward runs it)",
    },
    points=(EFFECTS, BACKWARD_STATE),
    probe="output_graph",
)
INSTALLED = Kind(
    name="output_graph.global",
    system=2,
    meaning="A name is put into the globals of the frame.",
    fields={
        "value": "what it stands for: functions with their place, other objects by class",
        "module": "whether it is a module that was imported for inlined code",
    },
    points=(GLOBAL, REWRITE),
    probe="output_graph",
)
BYTECODE = Kind(
    name="output_graph.bytecode",
    system=2,
    meaning="Bytecode as text (payload); the name is 'original' or 'generated'.",
    fields={
        "function": "name of the code object",
        "size": "size in bytes",
        "names": "globals and attributes that it refers to",
        "stack_size": "depth of its stack",
    },
    points=(REWRITE,),
    probe="output_graph",
)
KINDS = (
    COMPILE, INPUT, UNUSED_INPUT, SOURCES, SIDE_EFFECT, HOOK, INSTALLED, BYTECODE,
)  # fmt: skip

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _subgraph(recorder: Recorder, call: Call) -> Visit:
    graph, reason = call.args[0], call.argument(2, "reason")
    calls = tuple(_random_call(*item) for item in graph.random_calls)
    stack = recorder.user_stack(reason.user_stack or ())
    recorder.note(COMPILE, "", reason.reason, reason.graph_break, calls, stack=stack)
    yield


def _random_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """A call of the random module: torch allows only constants there."""
    given = [*args, *kwargs.values()]
    return function.__name__, tuple(
        item if isinstance(item, (int, float)) else None for item in given
    )


def _placeholders(graph: Any) -> dict[str, tuple[Any, str | None, str]]:
    """The inputs by name: Source, expression, class."""
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
            recorder.note(UNUSED_INPUT, name, position, expression, kind, why)


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
            INPUT, node.name, position, expression, place, kind, as_tensor, len(node.users)
        )
    recorder.note(SOURCES, "", table.rows)


def _effects(recorder: Recorder, call: Call) -> Visit:
    """Only the pass that is kept: Dynamo generates the code twice to count the uses."""
    effects = call.args[0]
    if call.argument(2, "log_side_effects"):
        for variable in effects._get_modified_vars():
            _note_effect(recorder, effects, variable)
        for tensor, hook, _, name in effects.tensor_hooks.values():
            recorder.note(
                HOOK, name, tensor.source, type(hook).__name__, hook.source, "side effect"
            )
    yield


def _note_effect(recorder: Recorder, effects: Any, variable: Any) -> None:
    attributes = tuple(effects.store_attr_mutations.get(variable) or ())
    mutation = type(variable.mutation_type).__name__
    if mutation.endswith("New") and not attributes:
        return  # Dynamo counts every new object among them: it is made anew, not changed.
    stacks = effects.mutation_user_stacks.get(variable) or ()
    recorder.note(
        SIDE_EFFECT,
        type(variable).__name__,
        variable.source,
        _class_of(variable),
        attributes,
        mutation,
        len(stacks),
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
        recorder.note(HOOK, result[0], None, type(hook).__name__, hook.source, "backward state")


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
        recorder.note(INSTALLED, name, describe(value), False)


def note_rewritten(
    recorder: Recorder, entry: CompileEntry, original: CodeType, result: tuple[CodeType, Any]
) -> None:
    """The bytecode of a frame and that which takes its place, with the modules that it imports."""
    generated, tracer_output = result
    for alias, module in tracer_output.output_graph.import_sources.items():
        recorder.note(INSTALLED, alias, module, True, entry=entry)
    for name, code in (("original", original), ("generated", generated)):
        _note_bytecode(recorder, entry, name, code)


def _note_bytecode(recorder: Recorder, entry: CompileEntry, name: str, code: CodeType) -> None:
    recorder.note(
        BYTECODE,
        name,
        code.co_name,
        len(code.co_code),
        code.co_names,
        code.co_stacksize,
        payload=_ADDRESS.sub("", dis.Bytecode(code).dis()),
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

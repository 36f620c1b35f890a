"""Bodies of higher-order operators: how Dynamo traces them, and who calls them.

Lives here: each SubgraphTracer with its parent, what it lifts out of the outer graphs, each call of
a higher-order operator in a graph (Dynamo's and AOTAutograd's) with its bodies, and the checks for
aliasing and mutation.  Not here: the graphs themselves, which hold the bodies (`dynamo`, `aot`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes import kernels
from torchreel.recorder.probes.guards import type_name
from torchreel.torch_compat.names import read

if TYPE_CHECKING:
    from torch.fx import Node

    from torchreel.recorder.recorder import Recorder

_GRAPH = "torch._dynamo.output_graph"
_OPERATORS = "torch._dynamo.variables.higher_order_ops"
TRACER = AttachPoint(_GRAPH, "SubgraphTracer.__init__", "the tracer of a graph or of a body")
INPUT = AttachPoint(_GRAPH, "SubgraphTracer.create_graph_input", "an input of a body")
LIFT = AttachPoint(
    _GRAPH,
    "SubgraphTracer.lift_tracked_freevar_to_input",
    "a value of an outer graph that a body uses",
)
MUTATION = AttachPoint(
    _GRAPH, "SubgraphTracer.has_input_mutation", "whether a body changes its inputs"
)
MUTATED = AttachPoint(
    _GRAPH, "MutationInfo.mutated_input_indices", "which inputs a body changes", since="2.13"
)
ALIASING = AttachPoint(
    _GRAPH, "SubgraphTracer.has_aliasing", "whether a body returns its inputs, or one value twice"
)
SPECULATE = AttachPoint(_OPERATORS, "speculate_subgraph", "traces a body")
SPECULATE_FLAT = AttachPoint(
    _OPERATORS, "speculate_subgraph_with_auto_output_flattening", "traces a body"
)
INSTALL = AttachPoint(
    _GRAPH, "OutputGraph.install_subgraph", "a body gets its name in the outer graph"
)
DYNAMO_GRAPH = AttachPoint(
    "torch._dynamo.dce_extra_outputs", "dce_hop_extra_outputs", "Dynamo's graph, complete"
)
AOT_GRAPH = AttachPoint(
    "torch._functorch._aot_autograd.graph_capture", "_create_graph", "AOTAutograd's graph, traced"
)
_CHECK = "check_input_alias_and_mutation_return_outputs"


def _check(module: str, since: str = "", until: str = "") -> AttachPoint:
    why = "aliasing and mutation in a body"
    return AttachPoint(f"torch._higher_order_ops.{module}", _CHECK, why, since, until)


CHECKS = (
    *(_check(module) for module in ("utils", "cond", "associative_scan", "base_hop")),
    # Since 2.14 Dynamo says which inputs these bodies change (`MUTATION`).
    _check("map", since="2.13", until="2.13"),
    _check("scan", until="2.13"),
    _check("switch", since="2.14"),
)
OPERATOR = AttachPoint("torch._ops", "HigherOrderOperator", "which nodes have bodies")
ATTACH_POINTS = (
    OPERATOR, TRACER, INPUT, LIFT, MUTATION, MUTATED, ALIASING, SPECULATE, SPECULATE_FLAT, INSTALL,
    DYNAMO_GRAPH, AOT_GRAPH, *CHECKS, kernels.TABLE,
)  # fmt: skip

ENTER = Kind(
    name="subgraph.enter",
    system=3,
    meaning="A tracer begins: of the frame's own graph, or of a body; its stack is the user's.",
    fields={
        "operator": "what it is for: a higher-order operator, or 'subgraph_wrapper' for one that "
        "is thrown away; null for the frame's own graph",
        "depth": "0 for the frame's own graph, 1 for its bodies, and so on",
        "parent": "seq of the `subgraph.enter` of the tracer around it",
    },
    points=(TRACER,),
    probe="subgraphs",
)
LEAVE = Kind(
    name="subgraph.leave",
    system=3,
    meaning="A body has been traced, or could not be.",
    fields={
        "body": "seq of its `subgraph.enter`; null when it did not come to that",
        "nodes": "number of its nodes",
        "inputs": "names of its inputs, in order",
        "lifted": "which of them stand for a value of the outer graph: [outer name, name]",
        "error": "class and message of the exception; null when it was traced",
    },
    points=(SPECULATE, SPECULATE_FLAT),
    probe="subgraphs",
)
BODY_INPUT = Kind(
    name="subgraph.input",
    system=3,
    meaning="A body gets an input; the name is its placeholder.",
    fields={
        "body": "seq of its `subgraph.enter`",
        "type": "class of the value",
        "expression": "its symbol or expression, for a symbolic number",
        "source": "where it comes from, as Python, when it is not of the outer graph",
    },
    points=(INPUT,),
    probe="subgraphs",
)
LIFTED = Kind(
    name="subgraph.lift",
    system=3,
    meaning="A value of an outer graph that a body uses becomes an input of it (and before that of "
    "every body between them); the name is that of the outer node.",
    fields={
        "body": "seq of its `subgraph.enter`",
        "input": "name of the new input",
        "expression": "its symbol or expression, for a symbolic number",
    },
    points=(LIFT,),
    probe="subgraphs",
)
BODY = Kind(
    name="hop.body",
    system=11,
    meaning="A body becomes a part of the graph; the name is the one that calls refer to. A body "
    "that several calls share has one.",
    fields={"nodes": "number of its nodes", "inputs": "names of its inputs, in order"},
    points=(INSTALL,),
    probe="subgraphs",
)
CALL = Kind(
    name="hop.call",
    system=11,
    meaning="A graph calls a higher-order operator; the name is the operator.",
    fields={
        "node": "name of the node",
        "graph": "path of bodies to the graph that holds it; '' for the outermost",
        "depth": "number of bodies around it",
        "bodies": "names of the bodies that it is given, in order",
        "operands": "number of its other arguments that are nodes",
        "level": "'dynamo', or 'aot' (functionalised and decomposed)",
    },
    points=(DYNAMO_GRAPH, AOT_GRAPH),
    probe="subgraphs",
)
CHECKED = Kind(
    name="hop.check",
    system=11,
    meaning="A body is looked at for aliasing and mutation; the name is what looks: Dynamo's check "
    "('has_input_mutation', 'has_aliasing') or an operator's module.",
    fields={
        "found": "whether there is any",
        "message": "what Dynamo says of it",
        "input_input": "inputs that share memory with another input, by position",
        "input_output": "inputs that share memory with an output",
        "output_output": "outputs that share memory with another output",
        "mutated": "positions of the inputs that it changes",
    },
    points=(MUTATION, ALIASING, *CHECKS),
    probe="subgraphs",
)
KINDS = (ENTER, LEAVE, BODY_INPUT, LIFTED, BODY, CALL, CHECKED, kernels.KERNEL)

_MOST_DEPTH = 50
"""Bodies within bodies that are looked into: more than any program has."""

_entered: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The event of each tracer."""


class _Here(threading.local):
    """The tracer that the body under way has got."""

    def __init__(self) -> None:
        self.body: int | None = None
        self.waits = False


_here = _Here()
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]


def _enter(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is not None:
        return
    tracer = args[0]
    operator = None if tracer.source_target is None else operator_name(tracer.source_target)
    parent = None if tracer.parent is None else _entered.get(tracer.parent)
    stack = None if tracer.parent is None else recorder.user_stack()
    name = tracer.description or operator or ""
    seq = recorder.note(ENTER, name, operator, tracer.debug_level, parent, stack=stack)
    _entered[tracer] = seq
    if _here.waits:
        _here.body, _here.waits = seq, False


def operator_name(target: Any) -> str:
    """The name of an operator, of a function, or of the class of another callable."""
    if isinstance(target, str):
        return target
    name = getattr(target, "__name__", None) or getattr(target, "_name", None)
    return str(name) if name else type_name(type(target))


def _speculate(recorder: Recorder, call: Call) -> Visit:
    outer = _here.body, _here.waits
    given = call.kwargs.get("tracer")
    _here.body, _here.waits = (None, True) if given is None else (_entered.get(given), False)
    try:
        outcome = yield
        body = _here.body
    finally:
        _here.body, _here.waits = outer
    description = str(call.argument(4, "description") or "")
    if outcome.error is not None:
        error = f"{type(outcome.error).__name__}: {outcome.error}"
        recorder.note(LEAVE, description, body, 0, (), (), error)
        return
    graph, lifted = outcome.result[1], outcome.result[2]
    nodes, inputs = _size(graph)
    pairs = tuple((proxy.node.name, inner.node.name) for proxy, inner in lifted.items())
    recorder.note(LEAVE, description, body, nodes, inputs, pairs, None)


def _size(graph: Any) -> tuple[int, tuple[str, ...]]:
    """The number of nodes and the names of the inputs."""
    names = tuple(node.name for node in graph.nodes if node.op == "placeholder")
    return len(graph.nodes), names


def _input(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is not None or args[0].parent is None:
        return
    value = args[3] if len(args) > 3 else kwargs["example_value"]
    source = args[5] if len(args) > 5 else kwargs.get("source")
    body = _entered.get(args[0])
    name = None if source is None else source.name
    recorder.note(
        BODY_INPUT, result.node.name, body, type_name(type(value)), _expression(value), name
    )


def _expression(value: Any) -> object:
    """The expression of a symbolic number."""
    node = getattr(value, "node", None)
    return getattr(node, "_expr", None)


def _before_lift(recorder: Recorder, args: _Args, kwargs: _Kwargs) -> bool:
    return args[1] in args[0].lifted_freevars


def _lift(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    tracer, proxy = args
    if error is not None or token or proxy not in tracer.lifted_freevars:
        return
    value = proxy.node.meta.get("example_value")
    body, inner = _entered.get(tracer), result.node.name
    recorder.note(LIFTED, proxy.node.name, body, inner, _expression(value))


def _install(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        gm = args[2] if len(args) > 2 else kwargs["sub_gm"]
        recorder.note(BODY, result, *_size(gm.graph))


def _dynamo_graph(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        _note_calls(recorder, args[0], "dynamo", "", 0)


def _aot_graph(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        _note_calls(recorder, result, "aot", "", 0)


def _note_calls(recorder: Recorder, gm: Any, level: str, path: str, depth: int) -> None:
    """The calls of higher-order operators in a graph, and in each of its bodies once."""
    from torch._ops import HigherOrderOperator

    seen: set[str] = set()
    for node in gm.graph.nodes:
        if not isinstance(node.target, HigherOrderOperator):
            continue
        bodies = [str(argument.target) for argument in _bodies(node)]
        operands = len(node.all_input_nodes) - len(set(bodies))
        name = operator_name(node.target)
        recorder.note(CALL, name, node.name, path, depth, tuple(bodies), operands, level)
        if name in kernels.WRAPPERS and level == "dynamo":
            kernels.note_kernel(recorder, node)
        for body in bodies:
            inner = getattr(gm, body, None)
            if body not in seen and hasattr(inner, "graph") and depth < _MOST_DEPTH:
                seen.add(body)
                _note_calls(recorder, inner, level, f"{path}.{body}".lstrip("."), depth + 1)


def _bodies(node: Node) -> Iterator[Node]:
    """The arguments of a call that are graphs, in order."""
    from torch.fx import Node

    def visit(value: object) -> Iterator[Node]:
        if isinstance(value, Node):
            if value.op == "get_attr" and _is_graph(value):
                yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from visit(item)
        elif isinstance(value, dict):
            yield from visit(list(value.values()))

    yield from visit([node.args, node.kwargs])


def _is_graph(node: Node) -> bool:
    return hasattr(getattr(node.graph.owning_module, str(node.target), None), "graph")


def _mutation(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        mutated = read(result, MUTATED)
        recorder.note(
            CHECKED, "has_input_mutation", result.has_mutation, result.msg, None, None, None,
            None if mutated is None else tuple(mutated),
        )  # fmt: skip


def _aliasing(
    recorder: Recorder,
    args: _Args,
    kwargs: _Kwargs,
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        recorder.note(
            CHECKED, "has_aliasing", result.has_aliasing, result.msg, None, None, None, None
        )


def _checker(module: str) -> Any:
    """Return what notes the check of one operator's module."""

    def check(
        recorder: Recorder,
        args: _Args,
        kwargs: _Kwargs,
        token: object,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            *maps, mutated = result[:4]
            within, across, outputs = (tuple(found.items()) for found in maps)
            found = bool(within or across or outputs or mutated)
            recorder.note(CHECKED, module, found, "", within, across, outputs, tuple(mutated))

    return check


PROBES = (
    Tap(TRACER, _enter),
    Tap(INPUT, _input),
    Tap(LIFT, _lift, _before_lift),
    Tap(MUTATION, _mutation),
    Tap(ALIASING, _aliasing),
    Probe(SPECULATE, _speculate),
    Probe(SPECULATE_FLAT, _speculate),
    Tap(INSTALL, _install),
    Tap(DYNAMO_GRAPH, _dynamo_graph),
    Tap(AOT_GRAPH, _aot_graph),
    *(Tap(point, _checker(point.module.rpartition(".")[2])) for point in CHECKS),
)

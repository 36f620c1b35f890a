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

from torchreel.events.subgraphs import (
    HopBody,
    HopCall,
    HopCheck,
    SubgraphEnter,
    SubgraphInput,
    SubgraphLeave,
    SubgraphLift,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.probes import kernels
from torchreel.recorder.probes.guards import type_name
from torchreel.torch_compat.versions.names import read

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

EVENTS: Events = {
    SubgraphEnter: (TRACER,),
    SubgraphLeave: (SPECULATE, SPECULATE_FLAT),
    SubgraphInput: (INPUT,),
    SubgraphLift: (LIFT,),
    HopBody: (INSTALL,),
    HopCall: (DYNAMO_GRAPH, AOT_GRAPH),
    HopCheck: (MUTATION, ALIASING, *CHECKS),
    **kernels.EVENTS,
}

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
    seq = recorder.note(
        SubgraphEnter(operator=operator, depth=tracer.debug_level, parent=parent), name, stack=stack
    )
    _entered[tracer] = seq
    if _here.waits:
        _here.body, _here.waits = seq, False


def operator_name(target: Any) -> str:
    """Return the name of an operator, of a function, or of the class of another callable."""
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
        recorder.note(
            SubgraphLeave(body=body, nodes=0, inputs=(), lifted=(), error=error), description
        )
        return
    graph, lifted = outcome.result[1], outcome.result[2]
    nodes, inputs = _size(graph)
    pairs = tuple((proxy.node.name, inner.node.name) for proxy, inner in lifted.items())
    recorder.note(
        SubgraphLeave(body=body, nodes=nodes, inputs=inputs, lifted=pairs, error=None), description
    )


def _size(graph: Any) -> tuple[int, tuple[str, ...]]:
    """Return the number of nodes and the names of the inputs."""
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
        SubgraphInput(
            body=body, type=type_name(type(value)), expression=_expression(value), source=name
        ),
        result.node.name,
    )


def _expression(value: Any) -> object:
    """Return the expression of a symbolic number."""
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
    recorder.note(
        SubgraphLift(body=body, input=inner, expression=_expression(value)), proxy.node.name
    )


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
        recorder.note(HopBody(*_size(gm.graph)), result)


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
    """Note the calls of higher-order operators in a graph, and in each of its bodies once."""
    from torch._ops import HigherOrderOperator

    seen: set[str] = set()
    for node in gm.graph.nodes:
        if not isinstance(node.target, HigherOrderOperator):
            continue
        bodies = [str(argument.target) for argument in _bodies(node)]
        operands = len(node.all_input_nodes) - len(set(bodies))
        name = operator_name(node.target)
        recorder.note(
            HopCall(
                node=node.name,
                graph=path,
                depth=depth,
                bodies=tuple(bodies),
                operands=operands,
                level=level,
            ),
            name,
        )
        if name in kernels.WRAPPERS and level == "dynamo":
            kernels.note_kernel(recorder, node)
        for body in bodies:
            inner = getattr(gm, body, None)
            if body not in seen and hasattr(inner, "graph") and depth < _MOST_DEPTH:
                seen.add(body)
                _note_calls(recorder, inner, level, f"{path}.{body}".lstrip("."), depth + 1)


def _bodies(node: Node) -> Iterator[Node]:
    """Yield the arguments of a call that are graphs, in order."""
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
            HopCheck(
                found=result.has_mutation,
                message=result.msg,
                input_input=None,
                input_output=None,
                output_output=None,
                mutated=None if mutated is None else tuple(mutated),
            ),
            "has_input_mutation",
        )


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
            HopCheck(
                found=result.has_aliasing,
                message=result.msg,
                input_input=None,
                input_output=None,
                output_output=None,
                mutated=None,
            ),
            "has_aliasing",
        )


def _checker(module: str) -> Any:
    """Return the probe that notes the check of one operator's module."""

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
            recorder.note(
                HopCheck(
                    found=found,
                    message="",
                    input_input=within,
                    input_output=across,
                    output_output=outputs,
                    mutated=tuple(mutated),
                ),
                module,
            )

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

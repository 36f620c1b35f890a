"""Proxy tracing: what make_fx turns into nodes.

Lives here: each tracing, each node as it is made, and the
arithmetic on symbolic scalars that becomes a node because something needs its result.  Not here:
the finished graphs (`aot`, `export`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchreel.events.proxies import ProxyNode, ProxyTrace, ProxyTraced, SymbolicNode
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_MODULE = "torch.fx.experimental.proxy_tensor"
TRACE = AttachPoint(
    _MODULE, "_MakefxTracer._trace_inner", "one tracing, also of a body of a higher-order operator"
)
NODE = AttachPoint(_MODULE, "PythonKeyTracer.create_node", "every node that a tracing makes")
SYMBOLIC = AttachPoint(
    _MODULE, "_compute_proxy", "symbolic arithmetic (__sym_dispatch__) whose result is needed"
)
ATTACH_POINTS = (TRACE, NODE, SYMBOLIC)

EVENTS: Events = {
    ProxyTrace: (TRACE,),
    ProxyTraced: (TRACE,),
    ProxyNode: (NODE,),
    SymbolicNode: (SYMBOLIC,),
}


def _tracing(recorder: Recorder, call: Call) -> Visit:
    from torchreel.recorder.event_log import describe

    tracer, function, arguments = call.args[0], call.args[1], call.args[2:]
    here = recorder.spans.here
    outer = here.cause
    here.cause = recorder.note(
        ProxyTrace(
            tracing_mode=tracer.tracing_mode,
            pre_dispatch=tracer.pre_dispatch,
            decompositions=_decompositions(tracer.decomposition_table or {}),
            subgraph=tracer.is_hop_subgraph_tracer(),
            arguments=describe.result(arguments),
        ),
        str(getattr(function, "__name__", "")),
    )
    outcome = yield
    _traced(recorder, outcome.result, outcome.error)
    here.cause = outer


def _decompositions(table: Mapping[object, object]) -> int:
    """Return how many decompositions a table has without the program's own.

    A replay may be without those: where they decide something, that is seen.
    """
    from torchreel.torch_compat.inductor.added_entries import own_decompositions

    return len(table) - sum(operator in table for operator in own_decompositions())


def _traced(recorder: Recorder, result: Any, error: BaseException | None) -> None:
    ended = "ok" if error is None else type(error).__name__
    recorder.note(ProxyTraced(ended, None if error is not None else len(result.graph.nodes)))


class _Thread(threading.local):
    computing = 0
    """The depth of symbolic results that are being computed, one inside of the other."""


_here = _Thread()


def _made(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    from torchreel.recorder.event_log.describe import op_name

    if error is not None:
        return
    target = result.target
    if _here.computing and not hasattr(target, "_schema"):
        # No operator: the arithmetic itself, noted where its operands are known.
        return
    recorder.note(
        ProxyNode(
            op=result.op,
            target=target if isinstance(target, str) else op_name(target),
            inputs=_inputs(result),
        ),
        result.name,
    )


def _inputs(node: Any) -> tuple[str, ...]:
    return tuple([used.name for used in node.all_input_nodes])


def _computing(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    _here.computing += 1
    return True


def _arithmetic(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    from torchreel.recorder.event_log.describe import op_name, size

    if token:
        _here.computing -= 1
    if error is None:
        node = result.node
        recorder.note(
            SymbolicNode(
                function=op_name(node.target),
                arguments=tuple([_argument(value) for value in node.args]),
                result=size(kwargs["out"]),
            ),
            node.name,
        )


def _argument(value: Any) -> object:
    """Return a node by its name; the terms of a `sym_sum`, which come as one list, one by one."""
    if isinstance(value, (list, tuple)):
        return tuple([_argument(item) for item in value])
    return getattr(value, "name", value)


PROBES = (
    Probe(TRACE, _tracing),
    Tap(NODE, _made, flight=False),
    Tap(SYMBOLIC, _arithmetic, _computing, flight=False),
)

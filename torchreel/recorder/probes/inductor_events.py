"""Events of Inductor inside its stages: passes, lowerings, fusions, kernels, compile commands.

Row 14 of the design's table of systems; the probes that open its stages are in `inductor`.  Not
here: the generated source (`trace`), choices that depend on the machine (`nondeterminism`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.guard import fail_open
from torchreel.recorder.kinds import Kind

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_SCHEDULER = "torch._inductor.scheduler"
JOINT = AttachPoint(
    "torch._inductor.compile_fx", "_recursive_joint_graph_passes", "the passes on the joint graph"
)
PASS = AttachPoint(
    "torch.fx.passes.graph_transform_observer",
    "GraphTransformObserver.__exit__",
    "the end of each single pass",
)
LOWER = AttachPoint("torch._inductor.graph", "GraphLowering.call_function", "one node's lowering")
FUSE = AttachPoint(_SCHEDULER, "Scheduler.fuse_two_nodes", "two nodes that are fused")
REFUSE = AttachPoint(_SCHEDULER, "WhyNoFuse.__call__", "two nodes that are not, and why")
SCHEDULE = AttachPoint(_SCHEDULER, "Scheduler._codegen", "the schedule as code is made from it")
EXTERN = AttachPoint(_SCHEDULER, "Scheduler.codegen_extern_call", "a call of a library's kernel")
CPP_KERNEL = AttachPoint(
    "torch._inductor.codegen.cpp", "CppScheduling.define_kernel", "a generated C++ kernel"
)
TRITON_KERNEL = AttachPoint(
    "torch._inductor.codegen.triton", "TritonScheduling.define_kernel", "a generated Triton kernel"
)
COMMAND = AttachPoint(
    "torch._inductor.cpp_builder", "run_compile_cmd", "a run of the C++ compiler in this process"
)
LOWERINGS = AttachPoint("torch._inductor.lowering", "lowerings", "the function that lowers a node")
FALLBACKS = AttachPoint("torch._inductor.lowering", "fallbacks", "operators that are called as is")
ATTACH_POINTS = (
    JOINT, PASS, LOWER, FUSE, REFUSE, SCHEDULE, EXTERN, CPP_KERNEL, TRITON_KERNEL, COMMAND,
    LOWERINGS, FALLBACKS,
)  # fmt: skip

FAMILY = Kind(
    name="inductor.passes",
    system=14,
    meaning="A family of passes ran over a graph; the graph is kept when it changed.",
    fields={
        "changed": "whether the graph is another one than before",
        "nodes": "how many nodes it had before and has now",
        "added": "the names of nodes that are new",
        "removed": "the names of nodes that are gone",
    },
    points=(JOINT,),
    pages=False,
    probe="inductor_events",
)
PASSED = Kind(
    name="inductor.pass",
    system=14,
    meaning="A single pass ended.",
    fields={"subsystem": "the family it belongs to", "nodes": "how many nodes the graph has now"},
    points=(PASS,),
    probe="inductor_events",
)
LOWERED = Kind(
    name="inductor.lowering",
    system=14,
    meaning="A node of the graph became Inductor's own representation.",
    fields={
        "target": "what the node calls",
        "how": "lowering, fallback (the operator itself is called), pattern or raised",
        "function": "the lowering's name, or the type of the exception",
        "result": "what it became: Pointwise, Reduction, FallbackKernel, ...",
    },
    points=(LOWER,),
    probe="inductor_events",
)
FUSED = Kind(
    name="inductor.fuse",
    system=14,
    meaning="Two scheduler nodes were fused.",
    fields={"nodes": "their names", "result": "the type of the fused node"},
    points=(FUSE,),
    probe="inductor_events",
)
REFUSED = Kind(
    name="inductor.no_fuse",
    system=14,
    meaning="Two scheduler nodes can't be fused; once for each pair and reason.",
    fields={"nodes": "their names", "reason": "why not"},
    points=(REFUSE,),
    probe="inductor_events",
)
SCHEDULED = Kind(
    name="inductor.schedule",
    system=14,
    meaning="The schedule is final.",
    fields={
        "nodes": "in order: (name, type, device, operations in it, graph nodes it comes from)",
    },
    points=(SCHEDULE,),
    probe="inductor_events",
)
KERNEL = Kind(
    name="inductor.kernel",
    system=14,
    meaning="A kernel was generated, or one with the same source was taken again.",
    fields={
        "backend": "cpp or triton",
        "source": "the SHA-256 of its source, before it gets its name",
        "nodes": "scheduler nodes in it",
        "origins": "graph nodes that it computes",
    },
    points=(CPP_KERNEL, TRITON_KERNEL),
    probe="inductor_events",
)
EXTERN_CALL = Kind(
    name="inductor.extern",
    system=14,
    meaning="A call of a library's kernel was generated.",
    fields={
        "kernel": "what is called",
        "type": "of the node in Inductor's representation",
        "origins": "graph nodes that it computes",
    },
    points=(EXTERN,),
    probe="inductor_events",
)
COMPILED = Kind(
    name="inductor.cpp_compile",
    system=14,
    meaning="The C++ compiler ran.",
    fields={
        "arguments": "of the command; of paths only the last part",
        "outcome": "ok, or the type of the exception",
        "message": "of the exception: what the compiler said",
    },
    points=(COMMAND,),
    probe="inductor_events",
)
KINDS = (
    FAMILY, PASSED, LOWERED, FUSED, REFUSED, SCHEDULED, KERNEL, EXTERN_CALL, COMPILED,
)  # fmt: skip

Signature = tuple[tuple[str, str], ...]


def signature(gm: Any) -> Signature:
    """Return what tells whether passes changed a graph: each node by name, and what it computes."""
    return tuple(
        (node.name, f"{node.op} {node.target} {node.args} {node.kwargs}") for node in gm.graph.nodes
    )


def note_family(
    recorder: Recorder, name: str, before: Signature, gm: Any, *, partition: str | None = None
) -> bool:
    """Return what a family of passes did to a graph; returns whether it changed."""
    after = signature(gm)
    old, new = {name for name, _ in before}, {name for name, _ in after}
    recorder.note(
        FAMILY,
        name,
        before != after,
        (len(before), len(after)),
        [name for name, _ in after if name not in old],
        [name for name, _ in before if name not in new],
    )
    if before != after and partition is not None and recorder.wants_graphs:
        from torchreel.formats.graphs.codec import encode_graph

        with fail_open(f"{name} graph"):
            recorder.add_graph(name, partition, encode_graph(gm))
    return before != after


def _joint(recorder: Recorder, call: Call) -> Visit:
    before = signature(call.argument(0, "gm"))
    outcome = yield
    if outcome.error is None:
        note_family(recorder, "joint", before, outcome.result, partition=recorder.partition())


def _passed(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    observer = args[0]
    recorder.note(PASSED, observer.passname, observer.subsystem, len(observer.gm.graph.nodes))


def _lowered(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    from torchreel.recorder.event_log import describe

    graph, target = args[0], args[1]
    node = getattr(graph, "current_node", None)
    how, function = ("raised", type(error).__name__) if error is not None else _how(target)
    name = node.name if node is not None else ""
    became = None if error is not None else _became(result)
    recorder.note(LOWERED, name, describe.op_name(target), how, function, became)


def _how(target: Any) -> tuple[str, str]:
    from torch._inductor import lowering  # imported: it was just used

    if hasattr(target, "_inductor_lowering_function"):
        return "pattern", getattr(target, "__name__", type(target).__name__)
    function = lowering.lowerings.get(target)
    name = getattr(function, "__name__", type(function).__name__)
    return ("fallback" if target in lowering.fallbacks else "lowering"), name


_BOXES = ("TensorBox", "StorageBox", "MutableBox")


def _became(result: Any) -> object:
    """The type inside of the boxes; of several results, the types."""
    if isinstance(result, (list, tuple)):
        return [_became(item) for item in result]
    while type(result).__name__ in _BOXES:
        result = result.data
    return type(result).__name__


def _fused(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None:
        names = (args[1].get_name(), args[2].get_name())
        recorder.note(FUSED, result.get_name(), names, type(result).__name__)


_refusals: set[tuple[int, str, str, str]] = set()
_MOST_REFUSALS = 50_000
"""Pairs and reasons that are remembered as noted; Inductor repeats them in each of ten rounds."""


def _refused(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    why, reason = args[0], args[1]
    if len(args) > 2 and all(isinstance(part, (str, int)) for part in args[2:]):
        reason = reason % args[2:]
    top = recorder.spans.top
    key = (id(top.entry) if top is not None else 0, why.name1, why.name2, reason)
    if key in _refusals:
        return
    if len(_refusals) > _MOST_REFUSALS:
        _refusals.clear()
    _refusals.add(key)
    recorder.note(REFUSED, "", (why.name1, why.name2), reason)


def _scheduled(recorder: Recorder, call: Call) -> Visit:
    nodes = call.argument(1, "nodes")
    _refusals.clear()
    recorder.note(SCHEDULED, "", [_of_schedule(node) for node in nodes])
    yield


def _of_schedule(node: Any) -> tuple[object, ...]:
    members = [member.get_name() for member in node.get_nodes()]
    device = node.get_device()
    return (
        node.get_name(),
        type(node).__name__,
        None if device is None else str(device),
        members,
        _origins(node.get_nodes()),
    )


def _origins(nodes: Iterable[Any]) -> list[str]:
    """The graph nodes that scheduler nodes come from, in the order in which they are met."""
    found: dict[str, None] = {}
    for node in nodes:
        operation = getattr(node, "node", None)
        for origin in getattr(operation, "origins", ()):
            found[origin.name] = None
    return sorted(found)


def _extern(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    node = args[1]
    operation = node.node
    kernel = getattr(operation, "python_kernel_name", None) or getattr(
        operation, "op_overload", None
    )
    recorder.note(
        EXTERN_CALL,
        node.get_name(),
        None if kernel is None else str(kernel),
        type(operation).__name__,
        _origins(node.get_nodes()),
    )


def _kernel(
    recorder: Recorder, call: Call, backend: str, scheduled: Iterable[Any], name: object
) -> None:
    nodes = [node for node in scheduled if hasattr(node, "get_name")]
    source = hashlib.sha256(str(call.argument(1, "src_code")).encode()).hexdigest()
    names = [node.get_name() for node in nodes]
    recorder.note(KERNEL, str(name), backend, source, names, _origins(nodes))


def _cpp_kernel(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None:
        _kernel(recorder, call, "cpp", call.argument(2, "nodes") or (), outcome.result)


def _triton_kernel(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None:
        _kernel(recorder, call, "triton", call.argument(2, "node_schedule") or (), outcome.result)


def _command(recorder: Recorder, call: Call) -> Visit:
    # With more than one compile worker, a thread of a pool calls the compiler, unless it is forked.
    entry = recorder.spans.only if recorder.spans.top is None else None
    outcome = yield
    error = outcome.error
    arguments = without_directories(call.argument(0, "cmd_line"))
    ended = "ok" if error is None else type(error).__name__
    message = None if error is None else without_directories_of(str(error))
    recorder.note(COMPILED, arguments[0], arguments[1:], ended, message, entry=entry)


def without_directories(command: str) -> list[str]:
    """The arguments of a command, with nothing of a path but its last part."""
    return [_without_directory(argument) for argument in shlex.split(command)]


def without_directories_of(text: str) -> str:
    """A text with nothing of the paths in it but their last parts."""
    return " ".join(_without_directory(word) for word in text.split(" "))


def _without_directory(argument: str) -> str:
    flag, slash, rest = argument.partition(os.sep)
    if not slash:
        return argument
    # `-I/include`, `-L/lib`, `/usr/bin/g++`; a leading part that is no flag is of the path.
    kept = flag if flag.startswith("-") or flag.endswith("=") else ""
    return f"{kept}.../{os.path.basename(rest.rstrip(os.sep))}"


PROBES = (
    Probe(JOINT, _joint),
    Tap(PASS, _passed),
    Tap(LOWER, _lowered),
    Tap(FUSE, _fused),
    Tap(REFUSE, _refused),
    Probe(SCHEDULE, _scheduled),
    Tap(EXTERN, _extern),
    Probe(CPP_KERNEL, _cpp_kernel),
    Probe(TRITON_KERNEL, _triton_kernel),
    Probe(COMMAND, _command),
)

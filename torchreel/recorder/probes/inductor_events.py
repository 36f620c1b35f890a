"""Events of Inductor inside its stages: passes, lowerings, fusions, kernels, compile commands.

The probes that open its stages are in `inductor`.  Not
here: the generated source (`trace`), choices that depend on the machine (`nondeterminism`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchreel.events.inductor import (
    CppCompile,
    ExternKernel,
    Fusion,
    InductorPass,
    InductorPasses,
    Kernel,
    Lowering,
    NoFusion,
    Schedule,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.failing_open import fail_open

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

EVENTS: Events = {
    InductorPasses: (JOINT,),
    InductorPass: (PASS,),
    Lowering: (LOWER,),
    Fusion: (FUSE,),
    NoFusion: (REFUSE,),
    Schedule: (SCHEDULE,),
    Kernel: (CPP_KERNEL, TRITON_KERNEL),
    ExternKernel: (EXTERN,),
    CppCompile: (COMMAND,),
}

Signature = tuple[tuple[str, str], ...]


def signature(gm: Any) -> Signature:
    """Return a signature that passes change with the graph: name and operation of each node."""
    return tuple(
        (node.name, f"{node.op} {node.target} {node.args} {node.kwargs}") for node in gm.graph.nodes
    )


def note_family(
    recorder: Recorder, name: str, before: Signature, gm: Any, *, partition: str | None = None
) -> bool:
    """Note the changes that a family of passes made to a graph; return True if there are any."""
    after = signature(gm)
    old, new = {name for name, _ in before}, {name for name, _ in after}
    recorder.note(
        InductorPasses(
            changed=before != after,
            nodes=(len(before), len(after)),
            added=[name for name, _ in after if name not in old],
            removed=[name for name, _ in before if name not in new],
        ),
        name,
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
    recorder.note(InductorPass(observer.subsystem, len(observer.gm.graph.nodes)), observer.passname)


def _lowers(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    node = getattr(args[0], "current_node", None)
    recorder.lowers(node.name if node is not None else "")


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
    recorder.note(
        Lowering(target=describe.op_name(target), how=how, function=function, result=became), name
    )


def _how(target: Any) -> tuple[str, str]:
    from torch._inductor import lowering  # imported: it was just used

    if hasattr(target, "_inductor_lowering_function"):
        return "pattern", getattr(target, "__name__", type(target).__name__)
    function = lowering.lowerings.get(target)
    name = getattr(function, "__name__", type(function).__name__)
    return ("fallback" if target in lowering.fallbacks else "lowering"), name


_BOXES = ("TensorBox", "StorageBox", "MutableBox")


def _became(result: Any) -> object:
    """Return the type inside of the boxes; of several results, the types."""
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
        recorder.note(Fusion(names, type(result).__name__), result.get_name())


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
    recorder.note(NoFusion((why.name1, why.name2), reason))


def _scheduled(recorder: Recorder, call: Call) -> Visit:
    nodes = call.argument(1, "nodes")
    _refusals.clear()
    recorder.note(Schedule([_of_schedule(node) for node in nodes]))
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
    """Return the graph nodes that scheduler nodes come from, in the order in which they are met."""
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
        ExternKernel(
            kernel=None if kernel is None else str(kernel),
            type=type(operation).__name__,
            origins=_origins(node.get_nodes()),
        ),
        node.get_name(),
    )


def _kernel(
    recorder: Recorder, call: Call, backend: str, scheduled: Iterable[Any], name: object
) -> None:
    nodes = [node for node in scheduled if hasattr(node, "get_name")]
    source = hashlib.sha256(str(call.argument(1, "src_code")).encode()).hexdigest()
    names = [node.get_name() for node in nodes]
    recorder.note(
        Kernel(backend=backend, source=source, nodes=names, origins=_origins(nodes)), str(name)
    )


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
    recorder.note(
        CppCompile(arguments=arguments[1:], outcome=ended, message=message),
        arguments[0],
        entry=entry,
    )


def without_directories(command: str) -> list[str]:
    """Return the arguments of a command, with nothing of a path but its last part."""
    return [_without_directory(argument) for argument in shlex.split(command)]


def without_directories_of(text: str) -> str:
    """Return a text with nothing of the paths in it but their last parts."""
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
    Tap(LOWER, _lowered, before=_lowers),
    Tap(FUSE, _fused),
    Tap(REFUSE, _refused),
    Probe(SCHEDULE, _scheduled),
    Tap(EXTERN, _extern),
    Probe(CPP_KERNEL, _cpp_kernel),
    Probe(TRITON_KERNEL, _triton_kernel),
    Probe(COMMAND, _command),
)

"""The rules of a comparison as data: the events that each entry compares, and the excuses.

Lives here: the entries' scopes and the table of excuses.  Not here: spelling (`normalise`), the
comparison itself (`compiles`).  A kind of event that no table names is compared: a new probe is
compared by default.

An excuse is for what belongs to the history of a process, or to the replay's being one: it names
where the difference may be, the class that it is counted in, and why.  What it sets aside is in the
notes of the verdict, never dropped in silence.  Classes in `ON_REQUEST` are set aside only when
`--allow` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torchreel.events.aot import AOTMetadata, LateBackward
from torchreel.events.backends import BackendCall, BackendReturn, BackendVerify, PieceArtifact
from torchreel.events.fake_tensors import FakeDispatch, FakeFailure, FakeMemo, MetaPropagation
from torchreel.events.frames import CacheMiss, CacheSize, FrameSkip, Hang, Recompile
from torchreel.events.inductor import CppCompile
from torchreel.events.nondeterminism import (
    Accelerator,
    CacheOutcome,
    DeviceProperties,
    FusedTime,
    Machine,
    TritonBuild,
    TritonConfig,
    VectorISA,
)
from torchreel.events.output_graph import InstalledGlobal
from torchreel.events.proxies import ProxyNode, SymbolicNode
from torchreel.events.scalars import KnownAssert
from torchreel.events.shape_env import ProducedGuards
from torchreel.events.trace import TraceStrings
from torchreel.store.documents.jsontypes import Json


class EventLike(Protocol):
    """An event, recorded or just noted; `data` is needed of few kinds (`selection.READ`)."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def seq(self) -> int: ...
    @property
    def data(self) -> Json: ...


@dataclass(frozen=True)
class Scope:
    """The part of a compile's event log that an entry replays.

    It begins after the mark of the checkpoint (event `shape_env.checkpoint`), or with the compile
    when `checkpoint` is False.  `lanes` says which stages begin a lane, that is a sequence of
    events whose order is fixed: a backward may be compiled long after its forward, or at once.
    Stages that begin none belong to the lane under way; those in `without` to nobody.
    """

    checkpoint: bool = True
    lanes: Mapping[str, str] | None = None
    without: frozenset[str | None] = frozenset()
    others: frozenset[tuple[str, str]] = frozenset()
    """Kind and name of events that are noted in a stage of the scope by one that is not."""
    graphs: tuple[str, ...] = ()
    """Stages whose graphs are compared."""
    inputs: tuple[str, ...] = ()
    """Kinds, by their beginnings, of what the conversion of real inputs does: it comes first."""


LIBRARIES: Mapping[str, tuple[str, Json]] = {
    "joint_graph": ("randperm_index_add_pattern", [[[4, 8], [8, 1]], [[2, 8], [8, 1]]]),
    "post_grad": ("prepare_softmax_pattern", [[[4, 8], [8, 1]], "int"]),
}
"""Libraries of patterns that Inductor traces once in a process and for a type of device
(`fx_passes.*.lazy_init`), and a pattern of each with its arguments, by which to tell that a compile
did it.  Of a tensor they are sizes and strides: its dtype is the default one, its device any."""

ONCE = frozenset({Accelerator.kind, DeviceProperties.kind, VectorISA.kind})
"""Kinds that are noted once in a compile: what was noted before the checkpoint, a replay notes."""

MAIN, BACKWARD = "", "backward"
_LANES = {
    "dynamo": MAIN, "guards": MAIN, "pre_grad": MAIN, "joint": MAIN, "forward": MAIN,
    "backward": BACKWARD,
}  # fmt: skip

TAKEN_AGAIN = ("aot", "export")
"""The checkpoints that the recorder takes in a replay as well."""
SCOPES: Mapping[str, Scope] = {
    # Everything, from the beginning on.
    "frame": Scope(
        checkpoint=False,
        lanes=_LANES,
        graphs=("dynamo", "joint", "forward", "backward", "post_grad"),
    ),
    # What Dynamo does, where another backend has to stand in for the recorded one.
    "dynamo": Scope(
        checkpoint=False,
        lanes=_LANES,
        without=frozenset(
            {"pre_grad", "joint", "forward", "backward", "post_grad", "lowering", "codegen"}
        ),
        graphs=("dynamo",),
    ),
    # After the backend has returned, Dynamo goes on: that is not replayed from its graph.
    "graph": Scope(
        lanes=_LANES,
        without=frozenset({"dynamo", "guards", None}),
        # Of a backend that failed, when Dynamo has the program go on in eager mode.
        others=frozenset({("artifact", "dynamo_graph_break_reason")}),
        graphs=("joint", "forward", "backward", "post_grad"),
        inputs=(
            "fake_tensors.",
            "shape_env.",
            "create_symbol",
            "describe_",
            KnownAssert.kind,
        ),
    ),
    # An exported program that is decomposed, to its end.
    "export": Scope(lanes=_LANES, without=frozenset({None}), graphs=("joint",)),
    # One ATen graph, from `compile_fx_inner` to its end: what AOTAutograd does next is not of it.
    "aot": Scope(
        lanes=_LANES,
        without=frozenset({"dynamo", "guards", "pre_grad", "joint", None}),
        graphs=("post_grad",),
    ),
}

FAKE_INPUTS = "fake inputs"
SHARDING = "sharding propagation"
EARLIER = "earlier compiles"
SKIPPED = "frames of the compiler"
FLIGHT = "flight mode"
CLASSES: Mapping[str, str] = {
    SHARDING: "DTensor keeps for the process what it has worked out of an operator's result",
    "times": "when timed regions began and ended",
    "trace log": "a process writes the version of torch once, before its first trace record",
    "file numbers": "a process names each file of its stacks once, when it first meets it",
    "fake-tensor cache": "what an operator returns comes from a cache of the process, or is worked "
    "out: that depends on all that the process did before",
    "caches": "a replay reads and leaves no compiled artifacts",
    "C++ compiler": "a replay compares the generated C++ and compiles it only where the failure "
    "needs it",
    FAKE_INPUTS: "a replay begins with fake tensors, where the program had real ones to convert",
    EARLIER: "compiles of the same code that were not kept have left nothing in its cache",
    SKIPPED: "where a program calls its backward in code that Dynamo looks at, it also looks at "
    "the functions that compile the backward, and leaves them alone",
    FLIGHT: "a recording in flight mode has neither torch's own trace, nor what happens once for "
    "each operator that is dispatched and each node that is traced",
    "epochs": "a fake mode counts its traces: from 0 in a replay that begins with an ATen graph, "
    "and otherwise where the program called its backward late",
    "seen before": "a fact of the machine is noted once in a compile, and was before",
    "Triton compiler": "a replay compares the generated Triton code and compiles it only where the "
    "failure needs it",
    "measurements": "the configuration of a Triton kernel is chosen where the program runs it, and "
    "what was measured to fuse kernels is given to a replay",
    "build of Triton": "a replay has it from the recording, and it stands in each kernel, which is "
    "compared",
    "late backward": "a replay compiles the backward at once, where the program may have "
    "waited for its first call",
    "replay's settings": "torch's own repro script and config dump name the environment of the "
    "process; config is restored from the checkpoint and compared by what it does",
}
"""The classes of difference that are always set aside, and why."""

ON_REQUEST: Mapping[str, str] = {
    "version": "recorded by another version of torch",
    "device": "the machine or its devices are others",
    "backend": "another backend stands in for the recorded one",
}
"""The classes that `--allow` may set aside."""


TRACE = "*"


def is_of_trace(kind: str) -> bool:
    """Return True for records of torch's own trace: the kinds of our own events have a dot."""
    return "." not in kind and kind != Hang.kind


@dataclass(frozen=True)
class Excuse:
    """An allowed difference: in events of a kind, of a name, in some stages.

    A `name` with a `*` at its end is a beginning of names.  The kind `TRACE` stands for all kinds
    of torch's own trace.
    `fields` are those of the event's data that may differ ('config.dynamic_shapes'); without any,
    the event as a whole may be there or not.
    """

    why: str
    kind: str
    name: str = ""
    fields: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()

    def covers(self, event: EventLike) -> bool:
        """Return True if the excuse applies to this event."""
        here = not self.stages or event.stage in self.stages
        named = self.name in ("", event.name) or (
            self.name.endswith("*") and str(event.name).startswith(self.name[:-1])
        )
        return (
            here and named and self.kind in (event.kind, TRACE if is_of_trace(event.kind) else "")
        )


FROM_CACHE = frozenset(
    {
        "torch/_functorch/_aot_autograd/aot_autograd_result.py",
        "torch/_functorch/_aot_autograd/autograd_cache.py",
        "torch/_inductor/codecache.py",
    }
)
"""Files of torch whose trace records tell of what a cache gave, before the hit is noted."""

_CACHE_METRICS = (
    *(
        f"compilation_metrics.{cache}_{place}_cache_{what}"
        for cache in ("aotautograd", "inductor_fx")
        for place in ("local", "remote")
        for what in ("hit_count", "miss_count", "hit_keys", "miss_keys", "backend_type")
    ),
    *(
        f"compilation_metrics.feature_usage.{name}"
        for name in (
            "fx_cache",
            "fx_remote_cache",
            "aot_autograd_remote_cache",
            "triton_bundling",
            "pgo",
        )
    ),
)
"""The part of Dynamo's metrics of a compile that is about caches: a replay leaves these alone."""

EXCUSES: tuple[Excuse, ...] = (
    Excuse("times", "chromium_event"),
    # Whether the pool of compile workers was warm by then.
    Excuse(
        "times",
        "compilation_metrics",
        fields=("compilation_metrics.feature_usage.parallel_compile_post_warmup",),
    ),
    Excuse("trace log", "artifact", "torch_version"),
    Excuse("file numbers", "str"),
    Excuse("file numbers", TraceStrings.kind),
    Excuse("caches", CacheOutcome.kind),
    # A graph that is to be kept in a cache is kept with its guards.
    Excuse("caches", ProducedGuards.kind, stages=("pre_grad", "forward", "backward")),
    *(
        Excuse("caches", "artifact", f"{cache}_cache_{outcome}")
        for cache in ("fx_graph", "aotautograd")
        for outcome in ("hit", "miss", "bypass")
    ),
    Excuse("caches", "compilation_metrics", fields=_CACHE_METRICS),
    # What an earlier process has seen of sizes is given to a replay, with what this one has.
    *(
        Excuse("caches", "artifact", f"{how}_code_state")
        for how in ("get_local", "get_remote", "get_extra_remote", "put_local", "put_remote")
    ),
    # The file is named by a digest of the code, in which a Triton kernel has a path of its own.
    Excuse(
        "caches",
        "inductor_output_code",
        fields=("inductor_output_code.filename", "inductor_output_code.file_path"),
    ),
    # What standalone_compile made can be kept: a replay makes nothing to keep.
    Excuse("caches", PieceArtifact.kind),
    Excuse("C++ compiler", CppCompile.kind),
    Excuse("Triton compiler", "artifact", "triton_kernel_info"),
    Excuse("measurements", TritonConfig.kind),
    Excuse("measurements", FusedTime.kind),
    Excuse("build of Triton", TritonBuild.kind),
    Excuse(SHARDING, MetaPropagation.kind),
    Excuse("epochs", FakeDispatch.kind, fields=("epoch",)),
    Excuse("epochs", FakeMemo.kind, fields=("epoch",)),
    Excuse(FAKE_INPUTS, AOTMetadata.kind, fields=("config.dynamic_shapes",)),
    # Results are compared on the real inputs (dynamo.verify_correctness).
    Excuse(FAKE_INPUTS, BackendVerify.kind),
    Excuse("late backward", AOTMetadata.kind, fields=("config.force_non_lazy_backward_lowering",)),
    Excuse("replay's settings", "artifact", "fx_graph_runnable"),
    Excuse("replay's settings", "artifact", "torch._functorch.config"),
    Excuse("late backward", LateBackward.kind),
    Excuse(SKIPPED, FrameSkip.kind, stages=("backward",)),
    Excuse("late backward", "bwd_compilation_metrics"),
    Excuse("replay's settings", Machine.kind, fields=("compile_workers",)),
)
DEVICE = (
    Excuse("device", DeviceProperties.kind),
    Excuse("device", Accelerator.kind),
    Excuse("device", VectorISA.kind),
    Excuse("device", Machine.kind),
)

BACKEND = (
    Excuse("backend", BackendCall.kind),
    Excuse("backend", BackendReturn.kind),
    # Inductor counts it, under whatever backend calls it.
    Excuse("backend", "compilation_metrics", fields=("compilation_metrics.num_graph_breaks",)),
    # The value is what the backend returned.
    Excuse("backend", InstalledGlobal.kind, "__compiled_fn_*", fields=("value",)),
)


VERSION = tuple(
    Excuse("version", kind, fields=("lineno",))
    for kind in (
        "artifact", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
        "aot_joint_graph", "backward_compile", "compilation_metrics", "dynamo_output_graph",
        "inductor_output_code", "inductor_post_grad_graph", "inductor_pre_grad_graph",
    )
)  # fmt: skip
"""The line of torch's files that wrote a record moves from version to version."""

WITHOUT_EARLIER = (
    *(Excuse(EARLIER, kind) for kind in (CacheSize.kind, Recompile.kind, CacheMiss.kind)),
    Excuse(EARLIER, "artifact", "recompile_reasons"),
    Excuse(
        EARLIER,
        "compilation_metrics",
        fields=tuple(
            f"compilation_metrics.{name}"
            for name in ("accumulated_cache_size", "cache_size", "recompile_reason")
        ),
    ),
)
NOT_IN_FLIGHT = tuple(
    Excuse(FLIGHT, kind)
    for kind in (
        TRACE, FakeDispatch.kind, FakeMemo.kind, FakeFailure.kind, ProxyNode.kind,
        SymbolicNode.kind,
    )
)  # fmt: skip
"""Left out by `recorder.session` in flight mode: the trace, and taps without `flight`.
Memos and failures of operators are noted by such a tap; those of conversions go with them."""
ASKED = {
    "version": VERSION, "device": DEVICE, "backend": BACKEND, EARLIER: WITHOUT_EARLIER,
    FLIGHT: NOT_IN_FLIGHT,
}  # fmt: skip


def excuses(allow: frozenset[str] = frozenset()) -> tuple[Excuse, ...]:
    """Return the excuses that hold: the standing ones, and those that the user allowed."""
    return (*EXCUSES, *(excuse for name in ASKED if name in allow for excuse in ASKED[name]))


def without(data: Json, fields: tuple[str, ...]) -> Json:
    """Return data without some of its fields, which are given by their paths."""
    for path in fields:
        data = _without(data, path.split("."))
    return data


def _without(data: Json, path: list[str]) -> Json:
    if not isinstance(data, Mapping) or path[0] not in data:
        return data
    head, *rest = path
    if rest:
        return {**data, head: _without(data[head], rest)}
    return {key: value for key, value in data.items() if key != head}

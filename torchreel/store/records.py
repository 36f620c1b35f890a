"""The rows that `queries` returns: one frozen dataclass per table.

Plain values only, so that they can be kept after the store is closed. `id` is the row's own; a
`digest` names a blob (`Store.read_blob`); times are `time.time_ns()`.
"""

from dataclasses import dataclass
from functools import cached_property

from torchreel.errors import DamagedStore
from torchreel.events.event import EventType, ShapeEnvEvent
from torchreel.events.reading import read_event
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import ASKED, Signature


@dataclass(frozen=True)
class Recording:
    """A recording of one process. `status` 'died' includes processes that died without a word."""

    id: int
    run: str
    kind: str
    replay_of: int | None
    entry: str | None
    pid: int
    rank: int | None
    argv: Json
    cwd: str
    started_ns: int
    ended_ns: int | None
    exit_status: int | None
    exit_signal: str | None
    status: str


@dataclass(frozen=True)
class Compile:
    """One attempt at one frame. `compile_id` is torch's name for it, such as '0/1'.

    torch gives its names anew when Dynamo is reset: `generation` counts the resets before it.

    `status` is 'skipped' where Dynamo left the frame to Python, and 'crashed' also when the
    process died during the compile and nobody wrote it down, and 'unknown' when it died and
    nobody can say whether the compile had returned.
    """

    id: int
    recording_id: int
    compile_id: str
    frame_id: int | None
    frame_compile_id: int | None
    attempt: int
    frame_name: str
    frame_file: str
    frame_line: int
    frame_source: str | None
    backend: str | None
    config_id: int | None
    status: str
    started_ns: int
    ended_ns: int | None
    generation: int = 0

    @property
    def place(self) -> str:
        """Return the part of the address of this compile after '#'."""
        return place_of(self.recording_id, self.compile_id, self.attempt, self.generation)


def place_of(recording: int, compile: str, attempt: int, generation: int) -> str:
    """Return the part of the address of a compile after '#'."""
    of = f"/g{generation}" if generation else ""
    return f"{recording}{of}/{compile}{f'_{attempt}' if attempt else ''}"


@dataclass(frozen=True)
class Stage:
    """A step of the pipeline that a compile went through, or is still in ('open')."""

    id: int
    compile_id: int
    stage: str
    partition: str
    started_ns: int
    ended_ns: int | None
    status: str


@dataclass(frozen=True)
class Event:
    """One thing that happened, at position `seq` of its recording's event log.

    `cause` is the seq of the event that this one is a part of; `stack` the innermost frame, by id,
    of the user's stack (`queries.stack`).
    """

    recording_id: int
    seq: int
    compile_id: int | None
    stage: str | None
    kind: str
    name: str
    time_ns: int
    data: Json
    payload: str | None
    cause: int | None = None
    stack: int | None = None

    @cached_property
    def fields(self) -> EventType | None:
        """The data as an instance of the event's type; None for a kind that has none.

        Raises `DamagedStore` for a field that holds what it cannot.
        """
        try:
            return read_event(self.kind, self.data)
        except ValueError as error:
            raise DamagedStore(f"The event {self.seq} cannot be read: {error}.") from error

    @property
    def env(self) -> int | None:
        """The number of the ShapeEnv that the event is of; None for an event of none."""
        return self.fields.env if isinstance(self.fields, ShapeEnvEvent) else None


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack that events were seen from; `parent` called it."""

    recording_id: int
    id: int
    parent: int | None
    file: str
    line: int
    name: str


@dataclass(frozen=True)
class StackPage:
    """Frames of stacks, kept together in one blob (`torchreel.store.blobs.pages`)."""

    id: int
    recording_id: int
    digest: str


@dataclass(frozen=True)
class EventPages:
    """Events of one compile, or of none, kept together in one blob (`torchreel.store.blobs.pages`).

    `kinds` has the kind and the number of those in each page, null for a page that was deleted.
    """

    id: int
    recording_id: int
    compile_id: int | None
    first_seq: int
    last_seq: int
    kinds: Json
    digest: str


@dataclass(frozen=True)
class Graph:
    """A graph as it was at a stage: `digest` is its portable form, `text_digest` its print-out."""

    id: int
    compile_id: int
    stage: str
    partition: str
    ordinal: int
    nodes: int
    call_nodes: int
    inputs: int
    outputs: int
    digest: str
    text_digest: str | None


@dataclass(frozen=True)
class GraphTarget:
    """The number of calls of a target in a graph; `depth` is 0 in the outer graph."""

    graph_id: int
    depth: int
    target: str
    count: int


@dataclass(frozen=True)
class Checkpoint:
    """The complete input of a stage: where a replay can start ('graph' or 'aot')."""

    id: int
    compile_id: int
    entry: str
    partition: str
    ordinal: int
    digest: str
    graph_id: int | None


@dataclass(frozen=True)
class FrameBundle:
    """The Python frame of a compile, without its tensors: what a replay of Dynamo starts from.

    `status` is 'complete', 'partial' (something could not be pickled, or was redacted) or 'refused'
    (there is none); `reason` names what is missing.  `digest` is a pickle, to be loaded only on
    trust (`torchreel.replay.child.frames`); `tensors` the descriptions of the tensors it refers to.
    """

    id: int
    compile_id: int
    status: str
    reason: str
    size: int
    digest: str | None
    tensors: str | None


@dataclass(frozen=True)
class OutputCode:
    """Source that the backend generated."""

    id: int
    compile_id: int
    partition: str
    ordinal: int
    digest: str


@dataclass(frozen=True)
class Failure:
    """An exception, a wrong result, a crash or a hang, with its signature."""

    id: int
    recording_id: int
    compile_id: int | None
    stage: str
    partition: str
    failure_class: str
    exception_type: str
    message: str
    chain: Json
    traceback: str | None
    signature: Signature
    signature_digest: str
    checkpoint_id: int | None
    time_ns: int

    @property
    def is_found(self) -> bool:
        """Return True if a reduction found this failure: the compile itself does not show it."""
        of_dynamo = self.failure_class == "wrong_result" and self.stage == "dynamo"
        return of_dynamo or self.failure_class in ASKED


@dataclass(frozen=True)
class Lost:
    """A loss of a recording: how often, where, why."""

    recording_id: int
    reason: str
    place: str
    count: int
    message: str


@dataclass(frozen=True)
class Reduction:
    """One run of the minifier: 'running', 'fixpoint', 'budget' or 'interrupted'."""

    id: int
    failure_id: int | None
    start_case: str
    best_case: str
    status: str
    oracle_runs: int
    cache_hits: int
    seconds: float
    started_ns: int

    @property
    def is_finished(self) -> bool:
        """Return True if its best case was run again at the end, and failed."""
        return self.status == "fixpoint"


@dataclass(frozen=True)
class ByCatch:
    """Another failure that a reduction met on its way."""

    id: int
    reduction_id: int
    signature_digest: str
    signature: Signature
    case_digest: str


@dataclass(frozen=True)
class Replay:
    """A replay of a compile: 'identical', 'diverged' or 'refused', and what was compared."""

    id: int
    compile_id: int
    recording_id: int | None
    entry: str
    verdict: str
    compared: Json
    detail: str

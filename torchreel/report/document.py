"""The document that the page of a report reads: its types, which are its schema.

Lives here: one struct per object, each field with a sentence that says what it is.
`docs/report.md` is made from these (`catalogue`).  Not here: where the values come from (`build`),
nor how they are shown (`assets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

FORMAT = 1
"""The number of this schema: another one when a field changes its meaning or goes."""


def says(text: str) -> msgspec.Meta:
    """Return the sentence that documents a field."""
    return msgspec.Meta(description=text)


class DocumentPart(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all objects of the document: a field with its default is left out."""


class PageDocument(DocumentPart, frozen=True):
    """The beginning of each document that a page reads."""

    format: Annotated[int, says("the number of this schema")]
    store: Annotated[str, says("the store, as it was named")]
    version: Annotated[str, says("the torchreel that made it")]


class SourceLine(DocumentPart, frozen=True):
    """A line of a program."""

    file: Annotated[str, says("the path of the file, as it was recorded")]
    line: Annotated[int, says("its number")]
    function: Annotated[str, says("the function that it is in")] = ""
    code: Annotated[str, says("the text of the line, where the store has it")] = ""


class TraceLine(DocumentPart, frozen=True):
    """A line of a stack trace of nodes."""

    file: Annotated[str, says("the path of the file, as it was recorded")]
    line: Annotated[int, says("its number")]
    function: Annotated[str, says("the function that it is in")]
    code: Annotated[str, says("the text of the line")] = ""
    by: Annotated[int | None, says("place in `lines` of the line that called the function")] = None


class WhyStep(DocumentPart, frozen=True):
    """One event of a story."""

    event: Annotated[str, says("the address of the event")]
    text: Annotated[str, says("what happened, as a sentence")]
    line: Annotated[SourceLine | None, says("the user's line that it was for")] = None
    torch: Annotated[str, says("the place in torch that asked")] = ""


class WhyStory(DocumentPart, frozen=True):
    """The answer to a 'why': a headline, what led to it, and what to know."""

    headline: Annotated[str, says("the answer in one sentence")]
    steps: Annotated[list[WhyStep], says("what led to it, in order")] = []
    notes: Annotated[list[str], says("explanations and hints of torch's")] = []
    code: Annotated[list[str], says("the checks that failed, for a recompile")] = []


class LossRow(DocumentPart, frozen=True):
    """Something that a recording had to leave out."""

    reason: Annotated[str, says("why, in a word or two")]
    place: Annotated[str, says("where")]
    count: Annotated[int, says("how often")]
    message: Annotated[str, says("what was said of it")]


class RecordingRow(DocumentPart, frozen=True):
    """The recording that one process wrote."""

    id: Annotated[int, says("its number in the store")]
    kind: Annotated[str, says("program, replay or import")]
    status: Annotated[str, says("how it ended")]
    program: Annotated[str, says("the command line")]
    started: Annotated[str, says("when it began, in local time")]
    rank: Annotated[int | None, says("its rank, in a distributed job")] = None
    environment: Annotated[dict[str, str], says("versions, machine and variables")] = {}
    lost: Annotated[list[LossRow], says("what is missing from it")] = []


class CallerFrame(DocumentPart, frozen=True):
    """A frame of the stacks that compiles were called from, in a tree."""

    file: Annotated[str, says("the path of the file")]
    line: Annotated[int, says("the line in it")]
    function: Annotated[str, says("the function")]
    parent: Annotated[int | None, says("place in `frames` of the frame that called it")] = None
    library: Annotated[bool, says("whether it is in a library, and not the user's")] = False


class CompileRow(DocumentPart, frozen=True):
    """One attempt at one frame: a row of the listing."""

    address: Annotated[str, says("its address, without the store")]
    recording: Annotated[int, says("the number of its recording")]
    frame: Annotated[str, says("the name of the function")]
    file: Annotated[str, says("the file of the function")]
    line: Annotated[int, says("the first line of the function")]
    status: Annotated[
        str, says("ok, failed, crashed, hung, restarted, skipped, running or unknown")
    ]
    backend: Annotated[str, says("the backend")] = ""
    started_ms: Annotated[float, says("milliseconds after its recording began")] = 0
    ms: Annotated[
        float | None,
        says("how long it took, without the time between its stages; null where nobody knows"),
    ] = None
    stack: Annotated[int | None, says("place in `frames` of the frame that called it")] = None
    stage: Annotated[str, says("the stage in which it failed")] = ""
    call_nodes: Annotated[int | None, says("call nodes of its first graph")] = None
    guards: Annotated[int, says("number of guards")] = 0
    breaks: Annotated[int, says("number of graph breaks, without one that raised")] = 0
    misses: Annotated[int, says("cache entries of the frame that could not be reused")] = 0
    cache: Annotated[list[str], says("what torch's caches answered: 'FxGraphCache hit'")] = []
    details: Annotated[
        int | None,
        says("place in `packed` of its `CompileDetails`; null where the page has no room"),
    ] = None


class ReducedCase(DocumentPart, frozen=True):
    """The reduction of a failure by the minifier."""

    status: Annotated[str, says("how the reduction ended: fixpoint, budget, interrupted")]
    before: Annotated[int, says("call nodes, or what else it counts, at the start")]
    after: Annotated[int, says("the same at the end")]
    runs: Annotated[int, says("how many cases were run")]
    same: Annotated[int, says("how often the smallest case was run and failed the same way")]
    text: Annotated[str, says("the smallest case: its graph, or its program")]
    command: Annotated[str, says("the command that writes it as a script")]


class FailureGroup(DocumentPart, frozen=True):
    """A distinct failure: all with one signature are one."""

    signature: Annotated[str, says("the first digits of the signature's digest")]
    kind: Annotated[str, says("exception, wrong_result, crash, hang, ...")]
    stage: Annotated[str, says("where it happened")]
    type: Annotated[str, says("the types of the exceptions, the outermost first")]
    message: Annotated[str, says("what it said")]
    compiles: Annotated[list[int], says("places in `compiles`, in order")]
    count: Annotated[int, says("how often it happened")] = 1
    line: Annotated[
        SourceLine | None, says("the user's line that its message names last, or that of `node`")
    ] = None
    torch: Annotated[str, says("the innermost function of the compiler")] = ""
    why: Annotated[list[WhyStory], says("what led to it, where a graph break did")] = []
    next: Annotated[str, says("the command to run next")] = ""
    repro: Annotated[ReducedCase | None, says("the smallest case known")] = None
    node: Annotated[
        str, says("the graph node that Inductor failed at, where the message names no line")
    ] = ""


class CauseGroup(DocumentPart, frozen=True):
    """A reason for restarts, recompiles or graph breaks: all with one reason are one."""

    kind: Annotated[str, says("restart, recompile or graph break")]
    what: Annotated[str, says("the reason in one line")]
    compiles: Annotated[list[int], says("places in `compiles`")]
    count: Annotated[int, says("how often it happened; of recompiles, the compiles")] = 1
    reason: Annotated[str, says("the reason in torch's words, with its hints")] = ""
    line: Annotated[SourceLine | None, says("the user's line of the first one")] = None


class RankView(DocumentPart, frozen=True):
    """One side of the place where ranks part, with all ranks that have it."""

    ranks: Annotated[list[int], says("the ranks")]
    text: Annotated[str, says("what they have there")]
    event: Annotated[str, says("the address of the event on the first of them")] = ""


class RankSchedule(DocumentPart, frozen=True):
    """The collectives of a graph, with all ranks that have them in this order."""

    ranks: Annotated[list[int], says("the ranks")]
    collectives: Annotated[list[str], says("the kernels of the collectives, in order")]
    event: Annotated[str, says("the address of torch's record on the first of them")] = ""


class RankGraph(DocumentPart, frozen=True):
    """A graph that Inductor scheduled, on all ranks."""

    compile: Annotated[str, says("the address of its compile, without the recording")]
    frame: Annotated[str, says("the name of the function")]
    partition: Annotated[str, says("inference, forward, backward or nothing")] = ""
    schedules: Annotated[
        list[RankSchedule], says("the orders of its collectives; one where the ranks agree")
    ] = []
    parts_at: Annotated[
        int | None, says("place of the first collective that is not the same on all ranks")
    ] = None
    ns: Annotated[
        list[float | None],
        says("its run time by rank, as Inductor estimates it; null where nobody asked for that"),
    ] = []


class RanksRow(DocumentPart, frozen=True):
    """The ranks of a job, and the first decision in which they part."""

    recordings: Annotated[list[int], says("the recordings of its ranks, by rank")]
    compiles: Annotated[int, says("how many compiles are the same on all of them")]
    decisions: Annotated[int, says("how many decisions are the same on all of them")]
    what: Annotated[
        str, says("compile, config, graph, guard, symbol, cache, ...; empty where they agree")
    ] = ""
    views: Annotated[list[RankView], says("what each has where they part")] = []
    before: Annotated[str, says("the last thing that they have in common")] = ""
    numbers: Annotated[list[int], says("the ranks that `recordings` are of")] = []
    graphs: Annotated[
        list[RankGraph], says("the graphs with collectives or estimates, in order")
    ] = []


class ReportDocument(PageDocument, frozen=True):
    """All that the page reads."""

    recordings: Annotated[list[RecordingRow], says("the recordings")]
    compiles: Annotated[list[CompileRow], says("the compiles, recording by recording")]
    frames: Annotated[list[CallerFrame], says("the stacks of the compiles")] = []
    failures: Annotated[
        list[FailureGroup], says("the distinct failures, the most frequent first")
    ] = []
    causes: Annotated[
        list[CauseGroup], says("the distinct restarts, recompiles and graph breaks")
    ] = []
    ranks: Annotated[RanksRow | None, says("the ranks of the last job, if there is any")] = None
    notes: Annotated[list[str], says("what can't be read, or was left out")] = []
    elsewhere: Annotated[
        str, says("where details are instead of `packed`: `scripts` of a site, a `server`")
    ] = ""
    packed: Annotated[
        list[str],
        says("`CompileDetails`, `GraphContent` and `CodeContent`: JSON, deflated, in base64"),
    ] = []

    def with_notes(self, notes: Iterable[str]) -> ReportDocument:
        """Return the document with more notes."""
        return msgspec.structs.replace(self, notes=[*self.notes, *notes])


class GraphNode(DocumentPart, frozen=True):
    """A node of a graph."""

    name: Annotated[str, says("its name")]
    op: Annotated[str, says("placeholder, get_attr, call_function, ..., output")]
    target: Annotated[str, says("what it calls, in short")]
    text: Annotated[str, says("the node as a line")]
    inputs: Annotated[list[int], says("places of the nodes that it uses")] = []
    line: Annotated[int | None, says("place in `lines` of the innermost line it came from")] = None
    origins: Annotated[list[str], says("names of the Dynamo nodes that it came from")] = []
    module: Annotated[str, says("the module of the model that it belongs to")] = ""


class GraphContent(DocumentPart, frozen=True):
    """A graph: a member of `packed`, for compiles that have the same one share it."""

    nodes: Annotated[list[GraphNode], says("its nodes, in order")]
    lines: Annotated[
        list[TraceLine], says("the lines of the program that its nodes came from")
    ] = []
    bodies: Annotated[dict[str, str], says("the graphs in it, by name, as text")] = {}


class GraphAt(DocumentPart, frozen=True):
    """The graph of a stage."""

    stage: Annotated[str, says("the stage")]
    partition: Annotated[str, says("inference, forward, backward or nothing")]
    nodes: Annotated[int, says("number of nodes")]
    call_nodes: Annotated[int, says("number of call nodes")]
    content: Annotated[int, says("place in `packed` of the `GraphContent`")]


class CodeContent(DocumentPart, frozen=True):
    """Generated code, or the text of a record: a member of `packed`."""

    text: Annotated[str, says("the code")]


class KernelCall(DocumentPart, frozen=True):
    """A call of a kernel in generated code, with what it computes."""

    name: Annotated[str, says("what is called")]
    backend: Annotated[str, says("cpp, triton, or extern for a library's kernel")]
    origins: Annotated[list[str], says("names of the graph nodes that it computes")]
    at: Annotated[int | None, says("the line of the call in the code, from 1")] = None
    source: Annotated[
        tuple[int, int] | None, says("the first and the last line of its source, from 1")
    ] = None


class CodeAt(DocumentPart, frozen=True):
    """The generated code of a partition, and its kernels."""

    partition: Annotated[str, says("inference, forward, backward or nothing")]
    content: Annotated[int, says("place in `packed` of the `CodeContent`")]
    kernels: Annotated[list[KernelCall], says("the calls of kernels, in order")] = []


class RecordAt(DocumentPart, frozen=True):
    """A record of torch's own trace that no other part of a page shows."""

    name: Annotated[str, says("its name in torch")]
    length: Annotated[int, says("characters of its text; 0 where it was not read")]
    content: Annotated[
        int | None, says("place in `packed` of its `CodeContent`; null where there is no room")
    ] = None


class StageSpan(DocumentPart, frozen=True):
    """A step of the pipeline."""

    stage: Annotated[str, says("its name")]
    status: Annotated[str, says("ok, failed, restarted, skipped, open or stopped")]
    start_ms: Annotated[float, says("milliseconds after the compile began")]
    partition: Annotated[str, says("inference, forward, backward or nothing")] = ""
    ms: Annotated[float | None, says("how long it took; null where it was not left")] = None


class GuardRow(DocumentPart, frozen=True):
    """A guard, and who made it."""

    type: Annotated[str, says("torch's name for its type; ShapeEnv for one over symbols")]
    code: Annotated[list[str], says("its checks, as Python")]
    event: Annotated[str, says("the address of its event")]
    expression: Annotated[str, says("what is guarded")] = ""
    line: Annotated[SourceLine | None, says("the user's line that needed it")] = None
    torch: Annotated[str, says("the place in torch that asked for it")] = ""


class SymbolRow(DocumentPart, frozen=True):
    """A symbolic size or number, and the events that made it what it is."""

    name: Annotated[str, says("its name")]
    now: Annotated[str, says("what it is at the end")]
    sources: Annotated[list[str], says("where guards read it")] = []
    steps: Annotated[list[WhyStep], says("the events that speak of it")] = []


class ConfigRow(DocumentPart, frozen=True):
    """A config value that was not the default."""

    name: Annotated[str, says("its full name")]
    value: Annotated[str, says("its value, as Python")]


class CacheAnswer(DocumentPart, frozen=True):
    """The answer of a cache of compiled graphs."""

    cache: Annotated[str, says("the cache")]
    outcome: Annotated[str, says("hit, miss or bypass")]
    key: Annotated[str, says("what it was asked for")] = ""
    reason: Annotated[str, says("why it was bypassed")] = ""


class ComparedFactor(DocumentPart, frozen=True):
    """A factor of a cache key, or a recorded fact, in which two keys differ."""

    name: Annotated[str, says("its name in torch")]
    left: Annotated[str | None, says("what the left has; null for nothing")] = None
    right: Annotated[str | None, says("what the right has; null for nothing")] = None


class ComparedKey(DocumentPart, frozen=True):
    """A lookup in one of torch's caches, beside the lookup that comes nearest to it."""

    cache: Annotated[str, says("the cache")]
    event: Annotated[str, says("the address of the lookup")]
    outcome: Annotated[str, says("hit, miss or bypass")]
    key: Annotated[str, says("what was asked for")] = ""
    nearest: Annotated[str, says("the address of the nearest lookup")] = ""
    nearest_outcome: Annotated[str, says("what that one found")] = ""
    verdict: Annotated[str, says("what the two say of one another")] = ""
    factors: Annotated[list[ComparedFactor], says("the factors in which the keys differ")] = []
    of: Annotated[int, says("how many factors the key has; 0 where torch wrote none")] = 0


class SymbolState(DocumentPart, frozen=True):
    """A symbol as it is after an event."""

    name: Annotated[str, says("its name")]
    hint: Annotated[str, says("the size that it was traced with")] = ""
    range: Annotated[str, says("the values that it may have")] = ""
    replacement: Annotated[str, says("what it was replaced by")] = ""
    sources: Annotated[str, says("where guards read it")] = ""


class SymbolMoment(DocumentPart, frozen=True):
    """An event that changed the table of symbols."""

    event: Annotated[str, says("the address of the event")]
    text: Annotated[str, says("what happened, as a sentence")]
    changed: Annotated[list[SymbolState], says("the symbols that it made or changed")] = []
    guards: Annotated[int, says("guards over symbols so far")] = 0
    asserts: Annotated[int, says("deferred assertions so far")] = 0


class KernelEstimate(DocumentPart, frozen=True):
    """The run time of a kernel, as Inductor estimates it."""

    name: Annotated[str, says("the kernel")]
    kind: Annotated[str, says("compute or collective")]
    ns: Annotated[float, says("nanoseconds")]


class GraphSchedule(DocumentPart, frozen=True):
    """A graph that Inductor scheduled: its collectives, and its estimates."""

    partition: Annotated[str, says("inference, forward, backward or nothing")]
    event: Annotated[str, says("the address of torch's record")]
    collectives: Annotated[list[str], says("the kernels of its collectives, in order")] = []
    differs: Annotated[
        list[str], says("in what the generated code calls other collectives, or lacks waits")
    ] = []
    estimates: Annotated[list[KernelEstimate], says("its kernels, in order")] = []


class ExportIssue(DocumentPart, frozen=True):
    """Something that an export ran into."""

    kind: Annotated[str, says("missing fake kernel, wrong fake kernel, data-dependent or guard")]
    text: Annotated[str, says("what happened, as a sentence")]
    event: Annotated[str, says("the address of the event")]
    line: Annotated[SourceLine | None, says("the user's line, where it is known")] = None
    values: Annotated[list[str], says("local variables of the user's at that line")] = []


class CompileDetails(DocumentPart, frozen=True):
    """The details of one compile: a member of `packed`."""

    stages: Annotated[list[StageSpan], says("the timeline")] = []
    graphs: Annotated[list[GraphAt], says("its graphs, in order")] = []
    code: Annotated[list[CodeAt], says("its generated code")] = []
    next: Annotated[str, says("the command to run next")] = ""
    source: Annotated[str, says("the source of the function")] = ""
    caller: Annotated[SourceLine | None, says("the user's line that called the function")] = None
    message: Annotated[str, says("its failure, in full")] = ""
    traceback: Annotated[str, says("the traceback of its failure")] = ""
    recompiles: Annotated[list[WhyStory], says("why entries of the cache could not be reused")] = []
    breaks: Annotated[list[WhyStory], says("what could not be traced")] = []
    specialised: Annotated[list[WhyStory], says("what was made static")] = []
    guards: Annotated[list[GuardRow], says("its guards")] = []
    symbols: Annotated[list[SymbolRow], says("its symbols")] = []
    config: Annotated[list[ConfigRow], says("its config, as far as it was not the default")] = []
    caches: Annotated[list[CacheAnswer], says("what torch's caches answered")] = []
    events: Annotated[dict[str, int], says("how many events of each kind there are")] = {}
    notes: Annotated[list[str], says("what of it can't be read")] = []
    moments: Annotated[
        list[SymbolMoment], says("the events that changed the table of symbols, in order")
    ] = []
    keys: Annotated[
        list[ComparedKey],
        says("its lookups in torch's caches beside the nearest earlier one of the same function"),
    ] = []
    records: Annotated[list[RecordAt], says("the records of torch's own trace, in order")] = []
    schedules: Annotated[
        list[GraphSchedule], says("the order of its collectives, and estimates of run times")
    ] = []
    exports: Annotated[list[ExportIssue], says("what an export ran into, in order")] = []


class CompileFile(DocumentPart, frozen=True):
    """The details of one compile where they have a file of their own."""

    details: Annotated[CompileDetails, says("the details; places in `packed` are those below")]
    packed: Annotated[
        list[str], says("`GraphContent` and `CodeContent`: JSON, deflated, in base64")
    ]


STRUCTS: tuple[type[DocumentPart], ...] = (
    ReportDocument, RecordingRow, LossRow, CompileRow, CallerFrame, FailureGroup, ReducedCase,
    CauseGroup, RanksRow, RankView, RankGraph, RankSchedule, CompileFile, CompileDetails,
    StageSpan, GraphAt, GraphContent, GraphNode, TraceLine, CodeAt, CodeContent, RecordAt,
    KernelCall, WhyStory, WhyStep, SourceLine, GuardRow, SymbolRow, SymbolMoment, SymbolState,
    ConfigRow, CacheAnswer, ComparedKey, ComparedFactor, GraphSchedule, KernelEstimate,
    ExportIssue,
)  # fmt: skip
"""All of them, in the order in which the documentation has them."""

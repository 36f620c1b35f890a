"""One run of one graph case, from its document to a report.

Lives here: rebuilding a case, checking it on fake values and in eager mode, compiling, running,
comparing. Not here: processes and limits (`oracle.worker`), stages (`stages`). Exceptions are
caught by `ErrorCatcher` alone, where one of the compiled program becomes data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from torchreel import sandbox
from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.node_arguments import decode_value
from torchreel.formats.shape_env import snapshots
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.synthetic import synthesise_all
from torchreel.minifier.cases.case import VALUE_KEYS, Case
from torchreel.minifier.cases.resizing import resized_checkpoints
from torchreel.minifier.oracle.child import code_generation
from torchreel.minifier.oracle.child.backends import backend_of
from torchreel.minifier.oracle.child.bisector import held_back
from torchreel.minifier.oracle.child.caught import ErrorCatcher
from torchreel.minifier.oracle.child.eager_references import References
from torchreel.minifier.oracle.child.killed_programs import killed_program
from torchreel.minifier.oracle.child.measures import measured
from torchreel.minifier.oracle.child.node_errors import node_errors
from torchreel.minifier.oracle.child.propagation import Propagation
from torchreel.minifier.oracle.child.stages import (
    Announce,
    Position,
    Stages,
    collected_partitions,
    followed,
)
from torchreel.minifier.oracle.predicates import QUANTITIES, Measured, Predicate, parse_predicate
from torchreel.minifier.oracle.protocol import ChildReport, Task
from torchreel.recorder.event_log.failures import is_restart
from torchreel.replay.accuracy.comparison import (
    Difference,
    arbitrary_values,
    differences,
    identity_differences,
    layout_differences,
)
from torchreel.replay.accuracy.results import Results
from torchreel.replay.child import restore
from torchreel.replay.imposed.device import libraries
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.store.failures.raised import lineage
from torchreel.store.failures.signature import Signature, from_exception, predicate_signature
from torchreel.torch_compat.autograd import aot
from torchreel.torch_compat.dynamo import backends, contexts
from torchreel.torch_compat.dynamo.automatic_dynamic import specialized_floats

# Larger inputs than this are not made only to check a case in eager mode.
_MOST_ELEMENTS = 20_000_000
_NOTHING = "eager computes nothing but NaN and infinities of the invented inputs"
_IN_PLACES = "eager computes NaN or infinities in places"
_VARIES = "eager itself varies there, with what was in its memory"
# Dynamo starts over when AOTAutograd finds a float that can't be an input; each time with one less.
_ATTEMPTS = 4
_NUMBERS = frozenset(name for name, found in QUANTITIES.items() if found.kind == "number")


def run(task: Task, announce: Announce) -> ChildReport:
    """Run a case and report the result; never raises an exception of the program under test."""
    case = _graph_case(task)
    for _ in range(_ATTEMPTS):
        found, error = _attempt(replace(task, case=case), announce)
        if error is None or not is_restart(error):
            break
        # What Dynamo would do: start over, having learnt which floats are no inputs.
        extra = {**case.checkpoint.extra, "specialized_floats": list(specialized_floats())}
        case = replace(case, checkpoint=replace(case.checkpoint, extra=extra))
    return found


def _graph_case(task: Task) -> Case:
    assert isinstance(task.case, Case), "`run_case` chose this runner"
    return task.case


def _attempt(task: Task, announce: Announce) -> tuple[ChildReport, Exception | None]:
    """Make one attempt; return the report and the exception that ended it, if one did."""
    case = _graph_case(task)
    prepared = _Prepared(case, trust=task.trust)
    for stage, step in (
        ("decode", prepared.decode),
        ("fake", prepared.propagate),
        ("eager", prepared.run_eagerly),
    ):
        announce(Position(stage))
        with ErrorCatcher() as outcome, _imposed(task):
            step()
        if outcome.error is not None:
            return ChildReport("invalid", None, _message(outcome.error), stage), None
    if task.signature.failure_class == "script":  # of which the user's command is the judge
        return ChildReport("none", None, "", "eager", "", prepared.values()), None
    with ErrorCatcher() as outcome, _imposed(task):
        prepared.find_backend()
    if outcome.error is not None:
        return ChildReport("invalid", None, _message(outcome.error), "decode"), None
    stages = Stages(announce, task.ceiling)
    difference: Difference | None = None
    holder = held_back(case.checkpoint.extra.get("held_back"))
    predicate = _predicate_of(task.signature)
    found_out: dict[str, Measured] = {}
    parts: list[CheckpointDoc] = []
    with (
        ErrorCatcher() as outcome,
        _imposed(task) as missing,
        followed(stages, _effort(task.signature)),
        holder,
        measured(predicate.names() if predicate is not None else (), found_out),
        collected_partitions(parts.append) if task.part else contextlib.nullcontext(),
    ):
        difference = _compile_and_run(prepared, stages, task.signature.message)
    if predicate is not None and outcome.error is None:
        found = _measured_report(task, predicate, prepared, found_out, stages)
    else:
        found = _report(outcome, stages, task.signature, difference)
    found = replace(found, note=holder.left_out, missing=[*missing, *prepared.stand_ins])
    if parts:
        found = replace(found, part=parse_json(parts[-1].to_bytes()))
    if prepared.rows:
        return replace(found, values=prepared.rows), outcome.error
    if found.verdict == "same":
        found = replace(found, values=prepared.values())
    if found.verdict == "none" and prepared.has_nothing_to_compare():
        found = replace(found, verdict="invalid", detail=_NOTHING, stage="run")
    elif found.verdict == "none":
        found = replace(found, detail=prepared.left_out())
    return found, outcome.error


def _predicate_of(wanted: Signature) -> Predicate | None:
    return parse_predicate(wanted.message) if wanted.failure_class == "predicate" else None


def _measured_report(
    task: Task,
    predicate: Predicate,
    prepared: _Prepared,
    found: dict[str, Measured],
    stages: Stages,
) -> ChildReport:
    """Report whether a predicate holds, from the measurements of a compile without an error."""
    found["guards"] = float(len(prepared.restored.env.guards))
    if "recompiles" in predicate.names():
        with ErrorCatcher() as outcome, _imposed(task):
            found["recompiles"] = float(_recompiles(prepared))
        if outcome.error is not None:
            return _report(outcome, stages, predicate_signature(str(predicate)), None)
    text = ", ".join(
        f"{name} = {found[name]:.6g}" for name in sorted(predicate.names()) if name in _NUMBERS
    )
    if not predicate.holds(found):
        return ChildReport("none", None, text, "", stages.reached)
    seen = predicate_signature(str(predicate))
    return ChildReport("same", seen.to_json(), text or str(predicate), "", stages.reached)


def _recompiles(prepared: _Prepared) -> int:
    """Count the compiles after the first, when each size in turn becomes larger by one."""
    calls = [prepared.inputs()]
    for doc in resized_checkpoints(prepared.case.checkpoint):
        with ErrorCatcher() as outcome:
            prepared.restored.graph(*prepared.inputs(doc))
        if outcome.error is None:
            calls.append(prepared.inputs(doc))
    return _compiles_of(prepared.restored.graph, prepared.backend, calls) - 1


def _compiles_of(
    graph: GraphModule, backend: Callable[..., Any], calls: Sequence[Sequence[object]]
) -> int:
    """Return the number of compiles by Dynamo if a graph is called with each of `calls` in turn."""
    count = 0

    def counting(gm: GraphModule, inputs: Sequence[object]) -> Any:
        nonlocal count
        count += 1
        return backend(gm, inputs)

    torch._dynamo.reset()
    compiled = torch.compile(graph, backend=counting)
    for inputs in calls:
        compiled(*inputs)
    return count


def _effort(wanted: Signature) -> Callable[[str], code_generation.Effort]:
    """Return the effort that the C++ compiler has to make for a partition, to show the failure."""
    if wanted.failure_class != "exception" or wanted.stage == "run":
        return lambda partition: "full"
    if wanted.exception_types == ("CppCompileError",):
        return lambda partition: "syntax"
    only_backward = wanted.partition == "backward"
    return lambda partition: "none" if only_backward and partition != "backward" else "full"


def _report(
    outcome: ErrorCatcher, stages: Stages, wanted: Signature, difference: Difference | None
) -> ChildReport:
    if outcome.error is not None:
        at = stages.failed_at(outcome.error)
        ours = (str(one) for one in lineage(outcome.error) if isinstance(one, UnsupportedError))
        if why := sandbox.denied(lineage(outcome.error)) or next(ours, ""):
            # Never the failure that is looked for, not even where that is a PermissionError.
            return ChildReport("unjudged", None, why, at.stage)
        if why := killed_program(outcome.error):
            return ChildReport("unjudged", None, why, at.stage, killed=True)
        seen = from_exception(outcome.error, at.stage, at.partition)
        detail, stage = _message(outcome.error), at.stage
    elif difference is not None:
        seen, detail, stage = difference.signature(), str(difference), "run"
        if seen.matches(wanted) and not seen.is_as_finite_as(wanted):
            return ChildReport("none", None, "", "", stages.reached)
    else:
        return ChildReport("none", None, "", "", stages.reached)
    verdict = "same" if seen.matches(wanted) else "other"
    return ChildReport(verdict, seen.to_json(), detail, stage, stages.reached)  # type: ignore[arg-type]


def _message(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text[:2000]}"


@contextlib.contextmanager
def _imposed(task: Task) -> Iterator[list[str]]:
    """Impose the recorded config and state around a compile; yields the entries left out."""
    case = _graph_case(task)
    with ExitStack() as stack:
        left = stack.enter_context(restore.imposed(case.checkpoint, trust=task.trust))
        stack.enter_context(code_generation.kernels_kept())
        if case.harness == "accuracy":
            stack.enter_context(code_generation.eager_random_numbers())
        yield [f"the config entry {name}" for name in left]


class _Prepared:
    """A case brought to life, as far as it has got."""

    def __init__(self, case: Case, *, trust: bool) -> None:
        self.case, self.trust = case, trust
        self.restored: restore.Restored
        self.stand_ins: tuple[str, ...] = ()
        self.backend: Callable[..., object]
        self.references: References | None = None
        self.rows: dict[str, Json] = {}

    def decode(self) -> None:
        """Rebuild the graph and its fake inputs."""
        doc = self.case.checkpoint
        doc = replace(doc, inputs=tuple(map(_as_seen_by_dynamo, doc.inputs)))
        bare = doc if self.case.is_exact else _bare(doc)
        self.restored = restore.restore(bare, trust=self.trust)
        called = {target for _, target, _ in doc.graph.targets()}
        self.stand_ins = tuple(
            f"the operator {name} (a stand-in returns zeros)"
            for name in restore.stand_in_for(doc)
            if called & {f"op:{name}", f"packet:{name.rpartition('.')[0]}"}
        )

    def find_backend(self) -> None:
        """Resolve the backend, unless Inductor's own entry is called."""
        if self.case.checkpoint.entry == "graph":
            self.backend = backend_of(self.case, trust=self.trust)

    def propagate(self) -> None:
        """Compute the fake value of every node, unless the recorded ones are to be used."""
        if self.case.is_exact:
            return
        key = "val" if self.case.checkpoint.entry == "aot" else "example_value"
        restored = self.restored
        Propagation(restored.graph, restored.mode, key).propagate(restored.inputs)

    def run_eagerly(self) -> None:
        """Run the graph on real inputs in eager mode, which raises for an invalid case."""
        if not self.case.eager or self._is_too_large() or self._is_elsewhere():
            return
        backward = self.case.harness in ("train", "accuracy")
        self.references = References(
            self.restored.graph, self.inputs, self.case.seed, backward=backward
        )
        _ = self.references.plain  # which raises what eager raises

    def has_nothing_to_compare(self) -> bool:
        """Return True if all results can be compared, and not one of eager's floats is a number."""
        floats = self._comparable_floats()
        every = self.references is not None and len(floats) == len(self.references.plain.outputs())
        return every and len(floats) > 0 and not any(v.isfinite().any() for v in floats)

    def left_out(self) -> str:
        """Return the reason why some values were not compared; empty where all were."""
        if self.references is None or self.case.harness != "accuracy":
            return ""
        if not all(v.isfinite().all() for v in self._comparable_floats()):
            return _IN_PLACES
        evidence = self.references.evidence(Results.outputs)
        arbitrary = arbitrary_values(self.references.plain.outputs(), evidence)
        numbers = ", ".join(map(str, arbitrary))
        return f"values of output {numbers} not compared: {_VARIES}" if arbitrary else ""

    def _comparable_floats(self) -> list[torch.Tensor]:
        """Return the floating-point results that can be checked for NaN."""
        if self.references is None or self.case.harness != "accuracy":
            return []
        results = self.references.plain.outputs()
        floats = [v for v in results if isinstance(v, torch.Tensor) and v.is_floating_point()]
        # Not every type of float, and no sparse tensor, can be examined: those may well be numbers.
        return [v for v in floats if v.numel() and v.layout is torch.strided and v.itemsize > 1]

    def _is_too_large(self) -> bool:
        if self.case.harness != "compile":
            return False
        tensors = [value for value in self.restored.inputs if isinstance(value, torch.Tensor)]
        hints = self.case.checkpoint.hints
        return sum(_elements(value, hints) for value in tensors) > _MOST_ELEMENTS

    def _is_elsewhere(self) -> bool:
        """Return True if the graph computes on a device that this machine only stands in for."""
        tensors = [value for value in self.restored.inputs if isinstance(value, torch.Tensor)]
        return libraries.stands_in() and any(value.device.type == "cuda" for value in tensors)

    def inputs(self, doc: CheckpointDoc | None = None) -> list[object]:
        """Return fresh real inputs, always the same.

        Those of a resized checkpoint, where one is given.
        """
        doc = self.case.checkpoint if doc is None else doc
        table = snapshots.decode_symbols(doc.shape_env)
        made = synthesise_all(doc.inputs, seed=self.case.seed, hints=doc.hints, table=table)
        for description, value in zip(doc.inputs, made, strict=True):
            _fill(description, value)
        return made

    def values(self) -> dict[str, Json]:
        """Return the descriptions of the values of all call nodes, by name.

        A case that is run ahead may have other values than the same case when it is judged.
        """
        encoder = Encoder()
        found: dict[str, Json] = {}
        for node in self.restored.graph.graph.nodes:
            value = next((node.meta[key] for key in VALUE_KEYS if key in node.meta), None)
            if node.op.startswith("call_") and value is not None:
                found[node.name] = encoder.describe(value)
        return found


def _as_seen_by_dynamo(value: Json) -> Json:
    """Describe a ZeroTensor as the ordinary tensor that Dynamo sees: only the real input has no
    memory.
    """
    fields = as_object(value)
    flags: Json = [flag for flag in as_list(fields.get("flags")) if flag != "zero"]
    return {**fields, "flags": flags} if "flags" in fields else value


def _bare(doc: CheckpointDoc) -> CheckpointDoc:
    """Return a checkpoint whose calls have no metadata: it is computed anew."""
    return replace(doc, graph=_bare_graph(doc.graph, outer=True))


def _bare_graph(graph: GraphDoc, *, outer: bool) -> GraphDoc:
    nodes = tuple(
        replace(node, meta={}) if outer or node.op != "placeholder" else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _fill(description: Json, value: object) -> None:
    """Give a tensor that stands for a Python number (Dynamo wraps floats) that number."""
    number = as_object(as_object(description).get("item"))
    found = decode_value(number.get("hint", number.get("v")), _no_leaf)
    if isinstance(value, torch.Tensor) and isinstance(found, (int, float)):
        with torch.no_grad():
            value.fill_(found)


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"a number is no {kind!r}, found {data!r:.60}")


def _elements(value: torch.Tensor, hints: Mapping[str, Json]) -> int:
    count = 1
    for size in value.shape:
        count *= size if isinstance(size, int) else int(str(hints.get(str(size), 1)))
    return count


def _compile_and_run(prepared: _Prepared, stages: Stages, wanted: str) -> Difference | None:
    """Compile, and as much of the rest as the harness needs.

    `wanted` is the kind of difference that is looked for, where it is one.
    """
    case = prepared.case
    compiled = _compiled(prepared, stages)
    if case.harness == "compile":
        return None
    with stages.inside("run"):
        if case.checkpoint.entry == "aot":
            compiled([*prepared.inputs()])
            return None
        got = Results(compiled, prepared.inputs(), case.seed)
        if case.harness == "train":
            got.backward()
        if case.harness == "nodes":
            prepared.rows = node_errors(prepared.references, got, case)
        return _difference(prepared, got, wanted) if case.harness == "accuracy" else None


def _difference(prepared: _Prepared, got: Results, wanted: str) -> Difference | None:
    """Compare eager and compiled: results, gradients, then how results lie in memory.

    The first of the kind that is looked for, if there is one, and a finite one before an infinite;
    else the first of all.
    """
    references, case = prepared.references, prepared.case
    if references is None:
        return None
    compare = partial(differences, comparator=case.comparator, imports=case.imports)
    eager = references.plain
    evidence = references.evidence(Results.forward)
    found = compare(eager.forward(), got.forward(), evidence)
    if wanted not in [one.kind for one in found]:
        evidence = references.evidence(lambda results: results.gradients)
        found += compare(eager.gradients, got.backward(), evidence)
        found += layout_differences((eager.inputs, got.inputs), eager.outputs(), got.outputs())
        found += identity_differences(eager.result, got.result)
    of_kind = sorted((one for one in found if one.kind == wanted), key=_is_infinite)
    return next(iter(of_kind or found), None)


def _is_infinite(difference: Difference) -> bool:
    return difference.magnitude is None


def _compiled(prepared: _Prepared, stages: Stages) -> Callable[..., object]:
    case, restored = prepared.case, prepared.restored
    backward = case.harness == "train"
    if case.checkpoint.entry == "aot":
        found = restore.run(restored)
    else:
        with (
            stages.inside("pre_grad"),
            contexts.tracing_context(restored.mode),
            aot.backward_now(backward),
        ):
            found = prepared.backend(backends.before_backend(restored.graph), restored.inputs)
    if not callable(found):
        raise TypeError(f"the backend gave {type(found).__name__}, which is not callable")
    return found

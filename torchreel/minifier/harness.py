"""One run of one case, from its document to what was seen. Runs in the worker's child.

Lives here: rebuilding a case, checking it on fake values and in eager mode, compiling, running,
comparing. Not here: processes and limits (`worker`), stages (`stages`). Nothing is caught here but
by `Outcome`, the one place where an exception of the compiled program becomes data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.minifier import torch_names
from torchreel.minifier.backends import backend_of
from torchreel.minifier.bisect.torch_names import held_back
from torchreel.minifier.case import VALUE_KEYS, Case
from torchreel.minifier.descriptions import as_list, as_object
from torchreel.minifier.measures import measured
from torchreel.minifier.predicates import QUANTITIES, Measured, Predicate, parse_predicate
from torchreel.minifier.protocol import Finding, Task
from torchreel.minifier.resized import resized
from torchreel.minifier.stages import Position, StageOver, Stages, followed
from torchreel.recorder.failures import is_restart
from torchreel.replay import restore
from torchreel.replay import torch_names as torch_replay
from torchreel.replay.comparison import Difference, compare, tensors_of
from torchreel.replay.device import libraries
from torchreel.store.jsontypes import Json
from torchreel.store.portable import shape_env
from torchreel.store.portable.checkpoints import CheckpointDoc
from torchreel.store.portable.graphs import GraphDoc
from torchreel.store.portable.tensors import Encoder, synthesise_all
from torchreel.store.portable.torch_names import specialized_floats
from torchreel.store.portable.values import decode_value
from torchreel.store.signature import Signature, from_exception, predicate_signature

Announce = Callable[[Position], None]

# Larger inputs than this are not made only to check a case in eager mode.
_MOST_ELEMENTS = 20_000_000
# Dynamo starts over when AOTAutograd finds a float that can't be an input; each time with one less.
_ATTEMPTS = 4
_NUMBERS = frozenset(name for name, found in QUANTITIES.items() if found.kind == "number")


class Outcome:
    """Swallows an exception of the program under test and keeps it; control flow too."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.over = False

    def __enter__(self) -> Outcome:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.over = isinstance(error, StageOver)
        self.error = error if isinstance(error, Exception) else None
        return self.over or self.error is not None


def run(task: Task, announce: Announce) -> Finding:
    """Run a case and say what came of it; never raises an exception of the program under test."""
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
    assert isinstance(task.case, Case), "`kinds.runner_of` chose this runner"
    return task.case


def _attempt(task: Task, announce: Announce) -> tuple[Finding, Exception | None]:
    """One attempt, and the exception that ended it, if one did."""
    case = _graph_case(task)
    prepared = _Prepared(case)
    for stage, step in (
        ("decode", prepared.decode),
        ("fake", prepared.propagate),
        ("eager", prepared.run_eagerly),
    ):
        announce(Position(stage))
        with Outcome() as outcome, _imposed(case):
            step()
        if outcome.error is not None:
            return Finding("invalid", None, _told(outcome.error), stage), None
    if task.signature.failure_class == "script":  # of which the user's command is the judge
        return Finding("none", None, "", "eager", "", prepared.values()), None
    stages = Stages(announce, task.ceiling)
    difference: Difference | None = None
    holder = held_back(case.checkpoint.extra.get("held_back"))
    asked = _asked(task.signature)
    found_out: dict[str, Measured] = {}
    with (
        Outcome() as outcome,
        _imposed(case),
        followed(stages, _effort(task.signature)),
        holder,
        measured(asked.names() if asked is not None else (), found_out),
    ):
        difference = _compile_and_run(prepared, stages)
    if asked is not None and outcome.error is None:
        found = _answered(asked, prepared, found_out, stages)
    else:
        found = _finding(outcome, stages, task.signature, difference)
    found = replace(found, note=holder.left_out)
    if found.verdict == "same":
        found = replace(found, values=prepared.values())
    return found, outcome.error


def _asked(wanted: Signature) -> Predicate | None:
    return parse_predicate(wanted.message) if wanted.failure_class == "predicate" else None


def _answered(
    asked: Predicate, prepared: _Prepared, found: dict[str, Measured], stages: Stages
) -> Finding:
    """Whether a predicate holds, of what was measured of a compile without an error."""
    found["guards"] = float(len(prepared.restored.env.guards))
    if "recompiles" in asked.names():
        with Outcome() as outcome, _imposed(prepared.case):
            found["recompiles"] = float(_recompiles(prepared))
        if outcome.error is not None:
            return _finding(outcome, stages, predicate_signature(str(asked)), None)
    told = ", ".join(
        f"{name} = {found[name]:.6g}" for name in sorted(asked.names()) if name in _NUMBERS
    )
    if not asked.holds(found):
        return Finding("none", None, told, "", stages.reached)
    seen = predicate_signature(str(asked))
    return Finding("same", seen.to_json(), told or str(asked), "", stages.reached)


def _recompiles(prepared: _Prepared) -> int:
    """Compiles after the first, when each size in turn becomes larger by one."""
    calls = [prepared.inputs()]
    for doc in resized(prepared.case.checkpoint):
        with Outcome() as outcome:
            prepared.restored.graph(*prepared.inputs(doc))
        if outcome.error is None:
            calls.append(prepared.inputs(doc))
    return torch_names.compiles_of(prepared.restored.graph, backend_of(prepared.case), calls) - 1


def _effort(wanted: Signature) -> Callable[[str], torch_names.Effort]:
    """What the C++ compiler has to do for a partition, to show the failure that is looked for."""
    if wanted.failure_class != "exception" or wanted.stage == "run":
        return lambda partition: "full"
    if wanted.exception_types == ("CppCompileError",):
        return lambda partition: "syntax"
    only_backward = wanted.partition == "backward"
    return lambda partition: "none" if only_backward and partition != "backward" else "full"


def _finding(
    outcome: Outcome, stages: Stages, wanted: Signature, difference: Difference | None
) -> Finding:
    if outcome.error is not None:
        at = stages.failed_at(outcome.error)
        seen = from_exception(outcome.error, at.stage, at.partition)
        detail, stage = _told(outcome.error), at.stage
    elif difference is not None:
        seen, detail, stage = difference.signature(), str(difference), "run"
    else:
        return Finding("none", None, "", "", stages.reached)
    verdict = "same" if seen.matches(wanted) else "other"
    return Finding(verdict, seen.to_json(), detail, stage, stages.reached)  # type: ignore[arg-type]


def _told(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text[:2000]}"


@contextlib.contextmanager
def _imposed(case: Case) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(restore.imposed(case.checkpoint))
        stack.enter_context(torch_names.kernels_kept())
        if case.harness == "accuracy":
            stack.enter_context(torch_names.eager_random_numbers())
        yield


class _Prepared:
    """A case brought to life, as far as it has got."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.restored: restore.Restored
        self.expected: Results | None = None

    def decode(self) -> None:
        """Rebuild the graph and its fake inputs."""
        doc = self.case.checkpoint
        doc = replace(doc, inputs=tuple(map(_as_seen_by_dynamo, doc.inputs)))
        self.restored = restore.restore(doc if self.case.is_exact else _bare(doc))

    def propagate(self) -> None:
        """Compute the fake value of every node, unless the recorded ones are to be used."""
        if self.case.is_exact:
            return
        key = "val" if self.case.checkpoint.entry == "aot" else "example_value"
        restored = self.restored
        torch_names.Propagation(restored.graph, restored.mode, key).propagate(restored.inputs)

    def run_eagerly(self) -> None:
        """Run the graph on real inputs: what eager rejects is no case."""
        if not self.case.eager or self._is_too_large() or self._is_elsewhere():
            return
        self.expected = Results(self.restored.graph, self.inputs(), self.case.seed)
        if self.case.harness in ("train", "accuracy"):
            self.expected.backward()

    def in_float64(self) -> Results | None:
        """Eager's results in double precision; None where the graph can't do that."""
        inputs = [_widened(value) for value in self.inputs()]
        exact: Results | None = None
        with Outcome():
            exact = Results(self.restored.graph, inputs, self.case.seed)
            exact.backward()
        return exact

    def _is_too_large(self) -> bool:
        if self.case.harness != "compile":
            return False
        tensors = [value for value in self.restored.inputs if isinstance(value, torch.Tensor)]
        hints = self.case.checkpoint.hints
        return sum(_elements(value, hints) for value in tensors) > _MOST_ELEMENTS

    def _is_elsewhere(self) -> bool:
        """Whether the graph computes on a device that this machine only stands in for."""
        tensors = [value for value in self.restored.inputs if isinstance(value, torch.Tensor)]
        return libraries.stands_in() and any(value.device.type == "cuda" for value in tensors)

    def inputs(self, doc: CheckpointDoc | None = None) -> list[object]:
        """Fresh real inputs, always the same; those of a resized checkpoint, where one is given."""
        doc = self.case.checkpoint if doc is None else doc
        table = shape_env.decode_symbols(doc.shape_env)
        made = synthesise_all(doc.inputs, seed=self.case.seed, hints=doc.hints, table=table)
        for description, value in zip(doc.inputs, made, strict=True):
            _fill(description, value)
        return made

    def values(self) -> dict[str, Json]:
        """The descriptions of what the call nodes compute, by name."""
        encoder = Encoder()
        found: dict[str, Json] = {}
        for node in self.restored.graph.graph.nodes:
            value = next((node.meta[key] for key in VALUE_KEYS if key in node.meta), None)
            if node.op.startswith("call_") and value is not None:
                found[node.name] = encoder.describe(value)
        return found


def _as_seen_by_dynamo(value: Json) -> Json:
    """A ZeroTensor is an ordinary tensor to Dynamo: only the real input has no memory behind it."""
    fields = as_object(value)
    flags: Json = [flag for flag in as_list(fields.get("flags")) if flag != "zero"]
    return {**fields, "flags": flags} if "flags" in fields else value


def _bare(doc: CheckpointDoc) -> CheckpointDoc:
    """A checkpoint whose calls have no metadata: it is computed anew."""
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


class Results:
    """What a function computed from inputs, and what its backward does to them."""

    def __init__(self, function: Callable[..., Any], inputs: list[object], seed: int) -> None:
        torch.manual_seed(seed)
        self.inputs = inputs
        self.gradients: list[object] = []
        self.result = function(*inputs)

    def forward(self) -> list[object]:
        """The values returned, then the inputs (they may have been written to)."""
        return [*tensors_of(self.result), *tensors_of(self.inputs)]

    def backward(self) -> list[object]:
        """The gradients of the inputs, from the sum of everything that needs one."""
        outputs = [
            value
            for value in torch.utils._pytree.tree_leaves(self.result)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if outputs:
            parts = [(value.abs() if value.is_complex() else value).sum() for value in outputs]
            total = torch.stack([part.to(torch.float64) for part in parts]).sum()
            total.backward()  # type: ignore[no-untyped-call]
        self.gradients = [_gradient(value) for value in self.inputs]
        return self.gradients


def _gradient(value: object) -> object:
    return value.grad if isinstance(value, torch.Tensor) and value.is_leaf else None


def _widened(value: object) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().to(torch.float64).requires_grad_(value.requires_grad)


def _compile_and_run(prepared: _Prepared, stages: Stages) -> Difference | None:
    """Compile, and as much of the rest as the harness asks for."""
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
        return _difference(prepared, got) if case.harness == "accuracy" else None


def _difference(prepared: _Prepared, got: Results) -> Difference | None:
    """Between eager and compiled: of the results, then (where those agree) of the gradients."""
    expected = prepared.expected
    if expected is None:
        return None
    exact = prepared.in_float64()
    one = exact.forward() if exact is not None else None
    found = compare(expected.forward(), got.forward(), one)
    if found is not None:
        return found
    return compare(expected.gradients, got.backward(), exact.gradients if exact else None)


def _compiled(prepared: _Prepared, stages: Stages) -> Callable[..., object]:
    case, restored = prepared.case, prepared.restored
    backward = case.harness == "train"
    if case.checkpoint.entry == "aot":
        found = restore.run(restored)
    else:
        backend = backend_of(case)
        with (
            stages.inside("pre_grad"),
            torch_replay.tracing_context(restored.mode),
            torch_replay.backward_now(backward),
        ):
            found = backend(restored.graph, restored.inputs)
    if not callable(found):
        raise TypeError(f"the backend gave {type(found).__name__}, which is not callable")
    return found

"""Cases written by hand and oracles that only look at the graph: the search without any torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

BUG = Signature("exception", "lowering", exception_types=("RuntimeError",), message="planted")
OTHER_BUG = Signature("exception", "lowering", exception_types=("KeyError",), message="another")

NO_SYMBOLS: dict[str, Json] = {"settings": {}, "symbols": {}, "state": {}}


def tensor(*size: int | str, **changes: Json) -> dict[str, Json]:
    """The description of a plain float32 tensor."""
    stride: list[Json] = [1] * len(size)
    for dim in reversed(range(len(size) - 1)):
        inner, step = size[dim + 1], stride[dim + 1]
        stride[dim] = step * inner if isinstance(inner, int) and isinstance(step, int) else 1
    return {
        "k": "tensor", "dtype": "float32", "device": "cpu", "layout": "strided",
        "size": list(size), "stride": stride, "offset": 0, "requires_grad": False, "leaf": True,
        "parameter": False, "flags": [], **changes,
    }  # fmt: skip


def ref(name: str) -> Json:
    """A use of a node."""
    return {"n": name}


def call(name: str, function: str, *args: Json, value: Json = None, **kwargs: Json) -> NodeDoc:
    """A call of `torch.FUNCTION`; its value is a tensor of 4 x 8 unless said otherwise."""
    meta = {"example_value": tensor(4, 8) if value is None else value}
    return NodeDoc(name, "call_function", f"fn:torch.{function}", list(args), kwargs, meta)


def case_of(calls: Sequence[NodeDoc], outputs: Sequence[str], **inputs: Json) -> Case:
    """A case that takes these inputs, makes these calls and returns these values."""
    placeholders = [
        NodeDoc(name, "placeholder", name, [], {}, {"example_value": value})
        for name, value in inputs.items()
    ]
    output = NodeDoc("output", "output", "output", [{"t": [ref(name) for name in outputs]}])
    graph = GraphDoc((*placeholders, *calls, output))
    doc = CheckpointDoc("graph", "", graph, tuple(inputs.values()), NO_SYMBOLS, (), {}, {})
    return Case(doc)


def chain(functions: Sequence[str]) -> Case:
    """x -> f -> g -> ... -> returned."""
    calls = []
    last = "x"
    for number, function in enumerate(functions):
        calls.append(call(f"{function}_{number}", function, ref(last)))
        last = f"{function}_{number}"
    return case_of(calls, [last], x=tensor(4, 8))


def functions_of(case: Case) -> list[str]:
    """What the outer graph calls, in order, without `torch.`."""
    return [n.target.removeprefix("fn:torch.") for n in case.graph.nodes if n.is_call]


def reaches(graph: GraphDoc, source: str, sink: str) -> bool:
    """Whether a value of a call of `source` flows into a call of `sink`."""
    tainted: set[str] = set()
    for node in graph.nodes:
        flows = any(name in tainted for name in node.inputs())
        if flows and node.target == f"fn:torch.{sink}":
            return True
        if flows or node.target == f"fn:torch.{source}":
            tainted.add(node.name)
    return False


@dataclass
class Predicate:
    """An oracle that looks at the case, and remembers what it was asked."""

    fails: Callable[[Case], bool]
    fails_otherwise: Callable[[Case], bool] = lambda case: False
    other: Signature = OTHER_BUG
    seen: list[str] = field(default_factory=list)

    def judge(self, case: Case) -> OracleReport:
        """The verdict of the predicate."""
        self.seen.append(case.digest)
        if self.fails(case):
            return OracleReport("same", BUG)
        return (
            OracleReport("other", self.other)
            if self.fails_otherwise(case)
            else OracleReport("none")
        )

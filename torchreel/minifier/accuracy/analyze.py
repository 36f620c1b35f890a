"""Eager against compiled, node by node: which value is the first that is wrong.

The graph is compiled once as it is, to see whether anything differs, and once with the value of
every node as an output, to see where. If that hides the error (an output is a wall to fusion), the
graph is cut off after one node or another and compiled up to there, by bisection. Nothing is
reduced, nothing is written to the store. Called by the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from torchreel.errors import NotReproduced, UnsupportedError
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.accuracy.inputs import is_wrong, with_telling_inputs
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import is_tensor
from torchreel.minifier.cases.side_effects import is_effectful
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.verdicts import OracleReport, raise_missing, raise_refusal
from torchreel.replay.accuracy import comparators
from torchreel.replay.imposed.documents import document
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import wrong_result_signature
from torchreel.store.records import Compile

_SNAPSHOT = "fn:torch.clone"


@dataclass(frozen=True)
class NodeRow:
    """One value of the graph: how far eager and the compiled code are from the exact one.

    Errors are the largest of any element, relative to the largest element of the exact value (in
    float64, where that exists; else eager's own).
    """

    name: str
    text: str
    """The node as code."""
    line: str
    """The user's line that it came from."""
    eager: float | None
    compiled: float | None
    wrong: bool


@dataclass(frozen=True)
class Analysis:
    """The difference of the compiled results from eager's, and the node where it begins."""

    difference: str
    """The first difference of the results; empty if there is none."""
    kind: str
    first: str
    """The first node whose value is wrong; empty where no node shows it."""
    alone: bool
    """True if the graph up to that node is wrong, compiled by itself."""
    rows: tuple[NodeRow, ...]
    note: str = ""
    """The values that were not compared, where nothing differs; empty where all were."""

    def to_json(self) -> Json:
        """Return the analysis as one JSON object."""
        return {**asdict(self), "rows": [asdict(row) for row in self.rows]}


def analyze(
    store: Store,
    compile: Compile,
    *,
    imports: Sequence[str] = (),
    comparator: str = "default",
    trust: bool = False,
    oracle: WorkerOracle | None = None,
) -> Analysis:
    """Compare eager and compiled for the last graph of a compile.

    `trust` restores config entries that name code, commands or paths.  Raises `UnsupportedError`
    where there is no graph, `UntrustedError` where the two agree without something that the
    recorded compile had, and `NotReproduced` where they can't be compared, because one of them
    fails.
    """
    comparators.comparator(comparator)  # which raises what it has against a comparator
    case = _case(store, compile, tuple(imports), comparator)
    wanted = wrong_result_signature("values")
    if oracle is not None:
        oracle.look_for(wanted)
        return _analyzed(case, oracle)
    with WorkerOracle(wanted, imports=imports, trust=trust) as worker:
        return _analyzed(case, worker)


def _case(store: Store, compile: Compile, imports: tuple[str, ...], comparator: str) -> Case:
    rows = [row for row in queries.checkpoints(store, compile) if row.entry == "graph"]
    if not rows:
        raise UnsupportedError(
            f"The compile {compile.place} has no graph in the store, so there is nothing to run."
        )
    doc = document(store, compile, rows[-1])
    lean = Case.from_checkpoint(doc, "accuracy", imports=imports)
    lines = {node.name: node.meta.get("stack_trace") for node in doc.graph.nodes}
    nodes = tuple(
        replace(node, meta={**node.meta, "stack_trace": lines[node.name]})
        if lines.get(node.name) is not None
        else node
        for node in lean.graph.nodes
    )
    return replace(lean.with_graph(replace(lean.graph, nodes=nodes)), comparator=comparator)


def _analyzed(case: Case, oracle: Oracle) -> Analysis:
    case, whole = with_telling_inputs(case, lambda one: oracle.judge(_plain(one)))
    seen = whole.observed
    raise_missing([whole] if seen is None else [])
    if seen is None and whole.verdict == "none":
        report = oracle.judge(_with_every_value(case))
        return Analysis("", "", "", False, _rows(case, report), whole.detail)
    if seen is None or seen.failure_class != "wrong_result":
        raise_refusal([whole])
        raise NotReproduced(
            f"Eager and compiled can't be compared: {whole.detail or 'one of them fails'}. "
            "'torchreel minify' reduces a failure."
        )
    rows = _rows(case, oracle.judge(_with_every_value(case)))
    wrong = [row.name for row in rows if row.wrong]
    first = wrong[0] if wrong else _bisected(case, oracle)
    alone = bool(first) and is_wrong(oracle.judge(_up_to(case, first)))
    return Analysis(whole.detail, seen.message, first, alone, rows)


def _bisected(case: Case, oracle: Oracle) -> str:
    """Return the first node up to which the graph is wrong by itself; empty where none is."""
    names = [node.name for node in _values(case.graph)]

    def fails(at: int) -> bool:
        return is_wrong(oracle.judge(_up_to(case, names[at])))

    low, high = -1, len(names) - 1
    if not names or not fails(high):
        # The last value need not be a result: look at all, from the end.
        found = [at for at in range(len(names) - 2, -1, -1) if fails(at)]
        return names[min(found)] if found else ""
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return names[high]


def _values(graph: GraphDoc) -> list[NodeDoc]:
    """Return the call nodes whose value is one tensor."""
    return [node for node in graph.nodes if node.is_call and is_tensor(node.value)]


def _plain(case: Case) -> Case:
    nodes = tuple(
        replace(node, meta={k: v for k, v in node.meta.items() if k != "stack_trace"})
        for node in case.graph.nodes
    )
    return case.with_graph(replace(case.graph, nodes=nodes))


def _up_to(case: Case, name: str) -> Case:
    """Return the graph that ends with that node, and returns its value."""
    case = _plain(case)
    nodes = list(case.graph.nodes)
    at = next(i for i, node in enumerate(nodes) if node.name == name)
    inputs = [node for node in nodes[at + 1 :] if node.op == "placeholder"]
    kept = [*nodes[: at + 1], *inputs, _returning(case.graph, [name])]
    return case.with_graph(replace(case.graph, nodes=tuple(kept)))


def _with_every_value(case: Case) -> Case:
    """Return the graph that returns each node's value as it was then.

    A later one may write to it.
    """
    case = _plain(case)
    values = {node.name for node in _values(case.graph)}
    writes = any(is_effectful(node) for node in case.graph.nodes if node.is_call)
    nodes: list[NodeDoc] = []
    names: list[str] = []
    for node in case.graph.nodes:
        if node.op == "output":
            continue
        nodes.append(node)
        if node.name not in values:
            continue
        name = f"{node.name}__then" if writes else node.name
        if writes:
            nodes.append(NodeDoc(name, "call_function", _SNAPSHOT, [{"n": node.name}]))
        names.append(name)
    nodes.append(_returning(case.graph, names))
    changed = case.with_graph(replace(case.graph, nodes=tuple(nodes)))
    return replace(changed, harness="nodes")


def _returning(graph: GraphDoc, names: Sequence[str]) -> NodeDoc:
    output = graph.output
    return replace(output, args=[{"t": [{"n": name} for name in names]}], meta={})


def _rows(case: Case, report: OracleReport) -> tuple[NodeRow, ...]:
    """Return a row for each value, with the node's text; none where the run failed."""
    if report.verdict != "none":
        return ()
    document = case.graph.to_json()
    found = []
    for node in _values(case.graph):
        data = report.values.get(node.name) or report.values.get(f"{node.name}__then")
        if isinstance(data, dict):
            text = spelling.node(node.to_json(), document)
            found.append(
                NodeRow(
                    node.name, text, _user_line(node), _number(data.get("eager")),
                    _number(data.get("compiled")), bool(data.get("wrong")),
                )
            )  # fmt: skip
    return tuple(found)


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _user_line(node: NodeDoc) -> str:
    """Return the last line of code of the node's stack."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    code = [line.strip() for line in lines if line.strip(" ^~")]
    code = [line for line in code if not line.startswith("File ")]
    return code[-1] if code else ""

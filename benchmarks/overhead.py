"""`make overhead`: what the search itself costs for a candidate, by the size of the graph.

Chains in which one sine and one cosine matter, and the recorded graph of a GPT-2 with 24 layers, in
which a tanh of the fifth and a softmax of the last layer do; an oracle that only looks (nothing is
compiled), a store as for any reduction, and the line that a worker would be sent. CPU seconds of
this process, without those of the oracle's answer; candidates count with the nodes of the case that
they change. Exits with 1 when the longest chain or the real graph is above the target.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import torch

import torchreel
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.protocol import Task
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

NODES = (500, 2000)
MOST_MILLISECONDS = 1.0
_BUG = Signature("exception", "lowering", exception_types=("RuntimeError",), message="planted")
_VALUE: Json = {
    "k": "tensor", "dtype": "float32", "device": "cpu", "layout": "strided", "size": [4, 8],
    "stride": [8, 1], "offset": 0, "requires_grad": False, "leaf": True, "parameter": False,
    "flags": [],
}  # fmt: skip


def chain(nodes: int) -> Case:
    """x -> relu -> ... -> sin -> ... -> cos -> ... -> returned."""
    names = ["relu"] * nodes
    names[nodes // 5], names[nodes * 3 // 4] = "sin", "cos"
    meta = {"example_value": _VALUE}
    docs = [NodeDoc("x", "placeholder", "x", [], {}, meta)]
    for number, name in enumerate(names):
        operand: Json = {"n": docs[-1].name}
        docs.append(
            NodeDoc(f"{name}_{number}", "call_function", f"fn:torch.{name}", [operand], {}, meta)
        )
    docs.append(NodeDoc("output", "output", "output", [{"t": [{"n": docs[-1].name}]}]))
    symbols: dict[str, Json] = {"settings": {}, "symbols": {}, "state": {}}
    return Case(CheckpointDoc("graph", "", GraphDoc(tuple(docs)), (_VALUE,), symbols, (), {}, {}))


def real() -> tuple[Case, str, str]:
    """The graph that Dynamo makes of a GPT-2, and the names of the two nodes that matter."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=24, n_embd=32, n_head=2, vocab_size=64, n_positions=32, use_cache=False,
        bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory(prefix="torchreel-overhead-") as folder:
        path = Path(folder, "run.db")
        with torchreel.record(path), torch.no_grad():
            torch.compile(model, backend="eager")(torch.randint(0, 64, (2, 9)))
        with Store.open(path) as store:
            (compile,) = queries.compiles(store, 1)
            (checkpoint, *_) = queries.checkpoints(store, compile)
            doc = CheckpointDoc.from_bytes(store.read_blob(checkpoint.digest))
    case = Case.from_checkpoint(doc)
    nodes = [node for node in case.graph.nodes if node.is_call]
    source = [node.name for node in nodes if "tanh" in node.target][4]
    return case, source, [node.name for node in nodes if "softmax" in node.target][-1]


class Looking:
    """An oracle and a listener: a case fails while one of two nodes reaches the other.

    Nodes are named, or meant by what they call.
    """

    def __init__(self, source: str, sink: str) -> None:
        self._ends = source, sink
        self.seconds = 0.0
        self.candidates = self.nodes = 0
        self._size = 0

    def judge(self, case: AnyCase) -> OracleReport:
        """What a worker would find; the line to it is written as for one."""
        assert isinstance(case, Case), "all of them are graphs"
        Task(case, _BUG, 1.0, 1).to_line()
        began = time.process_time()
        report = OracleReport("same", _BUG) if _fails(case, *self._ends) else OracleReport("none")
        self.seconds += time.process_time() - began
        return report

    def on_step(self, event: ProgressEvent) -> None:
        """Count a candidate with the nodes of the case that it changed."""
        if event.kind in ("accepted", "rejected"):
            self.candidates += 1
            self.nodes += self._size
        self._size = event.call_nodes


def _fails(case: Case, source: str, sink: str) -> bool:
    reached: set[str] = set()
    for node in case.graph.nodes:
        flows = not reached.isdisjoint(node.operands)
        if flows and node.is_call and sink in (node.name, node.target):
            return True
        if flows or (node.is_call and source in (node.name, node.target)):
            reached.add(node.name)
    return False


def main() -> int:
    """Print it; the exit status."""
    trigonometry = ("fn:torch.sin", "fn:torch.cos")
    costs = [_measure("chain", chain(nodes), *trigonometry) for nodes in NODES]
    costs.append(_measure("GPT-2", *real()))
    return 0 if max(costs[1:]) < MOST_MILLISECONDS else 1


def _measure(name: str, case: Case, source: str, sink: str) -> float:
    """Reduce it; milliseconds for a candidate and 100 nodes of the graph."""
    nodes, oracle = case.call_nodes, Looking(source, sink)
    with tempfile.TemporaryDirectory(prefix="torchreel-overhead-") as folder:
        path = Path(folder) / "run.db"
        with Store.open(path, write=True, create=True) as store:
            journal = StoreJournal(store, _BUG, "environment", None)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began = time.process_time()
            found = Search(oracle, _BUG, journal=journal, listener=oracle).run(case)
            seconds = time.process_time() - began - oracle.seconds
    each = 1e3 * seconds / oracle.candidates
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{name}, {nodes} -> {found.after_call_nodes} nodes: {seconds:.2f} CPU seconds for "
        f"{oracle.candidates} candidates, {each:.1f} ms each, {each * 100 / nodes:.2f} ms per "
        f"100 nodes of the graph, {1e5 * seconds / oracle.nodes:.2f} ms per 100 nodes of the "
        f"case that was changed; peak {peak / 1024:.0f} MiB, {(peak - before) / 1024:+.0f}"
    )
    return each * 100 / nodes


if __name__ == "__main__":
    sys.exit(main())

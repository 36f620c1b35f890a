"""`make overhead`: what the search itself costs for a candidate, by the size of the graph.

A chain in which one sine and one cosine matter, an oracle that only looks (nothing is compiled), a
store as for any reduction, and the line that a worker would be sent. CPU seconds of this process,
without those of the oracle's answer; candidates count with the nodes of the case they change.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from torchreel.minifier.case import Case
from torchreel.minifier.events import ProgressEvent, Report
from torchreel.minifier.journal import StoreJournal
from torchreel.minifier.kinds import AnyCase
from torchreel.minifier.protocol import Task
from torchreel.minifier.search import Search
from torchreel.store import Store
from torchreel.store.jsontypes import Json
from torchreel.store.portable.checkpoints import CheckpointDoc
from torchreel.store.portable.graphs import GraphDoc, NodeDoc
from torchreel.store.signature import Signature

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


class Looking:
    """An oracle and a listener: a case fails while a sine reaches a cosine."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.candidates = self.nodes = 0
        self._size = 0

    def judge(self, case: AnyCase) -> Report:
        """What a worker would find; the line to it is written as for one."""
        assert isinstance(case, Case), "the chain is a graph"
        Task(case, _BUG, 1.0, 1).to_line()
        began = time.process_time()
        report = Report("same", _BUG) if _fails(case) else Report("none")
        self.seconds += time.process_time() - began
        return report

    def on_step(self, event: ProgressEvent) -> None:
        """Count a candidate with the nodes of the case that it changed."""
        if event.kind in ("accepted", "rejected"):
            self.candidates += 1
            self.nodes += self._size
        self._size = event.call_nodes


def _fails(case: Case) -> bool:
    reached: set[str] = set()
    for node in case.graph.nodes:
        flows = not reached.isdisjoint(node.operands)
        if flows and node.target == "fn:torch.cos":
            return True
        if flows or node.target == "fn:torch.sin":
            reached.add(node.name)
    return False


def main() -> int:
    """Print it; 0 when the last, which is the longest, is within the target."""
    for nodes in NODES:
        case, oracle = chain(nodes), Looking()
        with tempfile.TemporaryDirectory(prefix="torchreel-overhead-") as folder:
            path = Path(folder) / "run.db"
            with Store.open(path, write=True, create=True) as store:
                journal = StoreJournal(store, _BUG, "environment", None)
                began = time.process_time()
                found = Search(oracle, _BUG, journal=journal, listener=oracle).run(case)
                seconds = time.process_time() - began - oracle.seconds
        each = 1e3 * seconds / oracle.candidates
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{nodes} -> {found.after_call_nodes} nodes: {seconds:.2f} CPU seconds for "
            f"{oracle.candidates} candidates, {each:.1f} ms each, {each * 100 / nodes:.2f} ms per "
            f"100 nodes of the chain, {1e5 * seconds / oracle.nodes:.2f} ms per 100 nodes of the "
            f"case that was changed; peak {peak:.0f} MiB"
        )
    return 0 if each * 100 / nodes < MOST_MILLISECONDS else 1


if __name__ == "__main__":
    sys.exit(main())

"""NumPy code that Dynamo traced: recorded, replayed, shown, and written as a script."""

from pathlib import Path

import pytest

from tests.replay.programs import UNCACHED, record
from tests.replay.test_replay import compiles_of
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import parse_json

PROGRAM = """
import numpy as np
def f(a, b, t):
    np.random.seed(3)
    x = np.concatenate([a, b], axis=0).astype(np.float32)
    y = np.einsum("ij,jk->ik", x, x.T)
    w = np.where(y > 0, (y + 1.5) / 3, np.zeros((1,), dtype="float32"))
    w[0] = 1.0
    n = t.numpy() ** 2
    n += 1
    return torch.from_numpy(w), np.linalg.norm(w[1:3]), abs(n), a.shape[0] * n
compiled = torch.compile(f, backend="inductor")
for rows in (2, 3):  # the second compile begins with a dynamic size
    compiled(np.ones((rows, 4)), np.ones((2, 4)), torch.ones(3))
"""


@pytest.mark.slow
def test_numpy_code_replays_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "arrays.db"
    assert record(path, "arrays", source=PROGRAM, **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        compiles = compiles_of(store)
        verdicts = [replay(store, compile) for compile in compiles]
        (graph, *_) = [g for g in queries.graphs(store, compiles[0]) if g.stage == "dynamo"]
        document = parse_json(store.read_blob(graph.digest))
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    shown = "\n".join(spelling.node(node, document) for node in document["nodes"])
    for text in ("np.concatenate([l_a_, l_b_], axis=0)", '.astype("float32")', "x.T", "y > 0"):
        assert text in shown

"""Does a replay notice every change of a recording, and where it is?

    python -m benchmarks.detection [STORE]

Records one program and replays it once (or takes a store that holds both), then changes one fact of
the recording at a time: a node, a literal, a symbol's range, a guard, a fusion decision, a line of
code, at the first, a middle and the last event of each kind.  Every one has to give *diverged*, at
the changed event.  Exits with 1 when one does not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.replay.mutations import Mutation, apply, expected, mutations, original, outcome
from tests.replay.programs import UNCACHED, record
from torchreel.replay import replay
from torchreel.store.database import Store

PROGRAM = (
    "f = torch.compile(lambda x, w: torch.tanh(x @ w).sum(0) * x.shape[0], dynamic=True)\n"
    "f(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).sum().backward()"
)


def main(arguments: list[str]) -> int:
    """Make every change; the exit status."""
    with tempfile.TemporaryDirectory(prefix="torchreel-detection-") as name:
        folder = Path(name)
        store = Path(arguments[0]) if arguments else _recorded(folder)
        results = [_one(mutation, store, folder) for mutation in mutations()]
    made = [result for result in results if result is not None]
    found = sum(made)
    print(f"{found} of {len(made)} changes found at their event")
    return int(found < len(made) or not made)


def _recorded(folder: Path) -> Path:
    path = folder / "run.db"
    assert record(path, "trained", source=PROGRAM, **UNCACHED) == 0
    with Store.open(path, write=True) as store:
        verdict = replay(store, original(store))
    assert verdict.verdict == "identical", verdict.detail
    return path


def _one(mutation: Mutation, store: Path, folder: Path) -> bool | None:
    """Whether a change was found where it is; None when there is nothing of the kind to change."""
    copy = folder / "mutated.db"
    try:
        seq = apply(mutation, store, copy)
    except LookupError:
        return None
    with Store.open(copy) as opened:
        found = outcome(opened)
    if seq is None:
        right = not found.agrees and expected(mutation) in found.detail
    else:
        right = found.divergence is not None and found.divergence.seq == seq
    print(f"{'found' if right else 'NOT FOUND'}: {mutation}: {found.detail}", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

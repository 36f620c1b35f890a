"""Changed checkpoints as cases: does a reduction read and refuse them without a traceback?

    python -m benchmarks.hostile_cases [--documents N] [--from M]

Changes one to three places of recorded checkpoints, as `hostile_documents` does, with values of
another type as well, and reduces what comes of it with an oracle that only looks: one that finds
the failure everywhere, and one that tosses a coin.  Every result is written as a script.  No child
is started, so that thousands take some minutes: this is about the process that reads the store.

Prints what became of them, and each traceback with its number; exits with 1 if there was one, or if
less than half could be read.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import hostile_documents
from benchmarks.hostile_documents import Documents
from tests.minifier.hand_made import BUG, Predicate
from torchreel.errors import TorchreelError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import case_from_bytes
from torchreel.minifier.options import Budget
from torchreel.minifier.scripts.script import compile_form, graph_form
from torchreel.minifier.search.search import Search

_RUNS = Budget(runs=150)
WRONG_TYPES: Sequence[Any] = (
    0, 1, -5, 1.5, False, "x", "s77", "Add(s77, 1)", "u0", "float32", 2**31, [1], [None],
    [[1, 2], [3]], {"a": 1}, {"n": "x"}, {"k": "tensor"}, {"k": "symint", "expr": "s99"},
)  # fmt: skip
"""Values that stand in a checkpoint, but elsewhere."""


def main(arguments: list[str]) -> int:
    """Record, change, reduce, and print the table; the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--from", dest="start", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="torchreel-cases-") as folder:
        hostile_documents.record(Path(folder))
        checkpoints = hostile_documents.checkpoints_of(Path(folder))
    numbers = range(options.start, options.start + options.documents)
    counts, tracebacks = reduce_all(checkpoints, numbers)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    for number, text in tracebacks:
        print(f"--- checkpoint {number}\n{text}")
    return int(bool(tracebacks) or counts["read"] < len(numbers) / 2)


def reduce_all(
    checkpoints: Sequence[dict[str, Any]], numbers: range
) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Reduce the changed checkpoints; returns what became of them, and the tracebacks."""
    documents = Documents(checkpoints, [*hostile_documents.PAYLOADS, *WRONG_TYPES])
    counts: Counter[str] = Counter()
    tracebacks: list[tuple[int, str]] = []
    for number in numbers:
        try:
            case = _case(documents.changed(number))
        except TorchreelError:
            counts["refused"] += 1
            continue
        except Exception:  # noqa: BLE001  what this is about
            tracebacks.append((number, traceback.format_exc()))
            continue
        counts["read"] += 1
        for share in (1.0, 0.5):
            try:
                counts.update(_reduced(case, share, random.Random(number)))
            except Exception:  # noqa: BLE001  as above
                tracebacks.append((number, traceback.format_exc()))
    return counts, tracebacks


def _case(document: Any) -> Case:
    data = json.dumps(document).encode()  # as a store has it: keys are text
    case = Case.from_checkpoint(CheckpointDoc.from_bytes(data))
    found = case_from_bytes(case.to_bytes())
    assert isinstance(found, Case), "its document says so"
    return found


def _reduced(case: Case, share: float, chance: random.Random) -> list[str]:
    """Reduce a case and write it down; returns what could be done.

    It fails itself, and so does a share of the candidates.
    """
    oracle = Predicate(lambda one: one.digest == case.digest or chance.random() < share)
    search = Search(oracle, BUG, limits=_RUNS)
    done = []
    try:
        case = search.run(case).case  # type: ignore[assignment]
        done.append("reduced")
    except TorchreelError:
        done.append("not reduced")
    for form in (compile_form, graph_form):
        try:
            form(case, BUG, [])
            done.append("written")
        except TorchreelError:
            done.append("not written")
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

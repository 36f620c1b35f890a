"""Reductions with 1 to 64 workers: the same result, the speed-up, the runs in vain (half an hour).

    python -m benchmarks.parallel [--workers N]... [--sleep SECONDS] [--where] [MODEL]...

The graphs of real models, as Dynamo makes them, with a planted bug that shows where some of their
calls come one after the other; some rows need few calls, others many, which are refused one by
one. The workers run in a simulated clock, where a run takes a second, or one to three; with
`--sleep`, in threads that sleep as long as given, so that the search has to keep up with them.

`chain` is how much faster any number of workers could be that wait for each candidate that is
accepted (Amdahl: what comes after it is made of it): the runs by the accepted ones and one more.
Workers that guess what is accepted can be faster. `--where` prints, for the most workers, in which
passes the search had to wait for a verdict, and how often.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import path as module_path
from time import monotonic

module_path.insert(0, str(Path(__file__).parent))

from minifier_programs import MODELS

from tests.formats.compiles import compile_and_see
from tests.minifier.hand_made import BUG
from tests.minifier.simulated import Latency, PoolOracle, SimulatedPool, SleepingPool
from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.oracle.runs_ahead import Pool
from torchreel.minifier.search.course import Course
from torchreel.minifier.search.likelihood import Likelihood
from torchreel.minifier.search.search import Search

_REDUCTIONS = [
    ("gpt2-2", 4), ("gpt2-2", 30), ("gpt2-2", 60), ("t5", 8), ("t5", 40), ("t5", 70),
    ("bert", 6), ("bert", 24), ("bert", 40), ("bert", 60), ("experts", 10), ("mlp", 12),
]  # fmt: skip


@dataclass
class _Ended:
    """A reduction that has ended."""

    seen: list[str]
    case: AnyCase
    accepted: int
    seconds: float
    wasted: int
    waits: Counter[str]


class _Waits(Likelihood):
    """Counts the verdicts for which the clock went on, by pass."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock, self._last = clock, clock()
        self.waits: Counter[str] = Counter()

    def learn(self, course: Course, same: bool) -> None:
        """See `Likelihood`."""
        now = self._clock()
        if now > self._last:
            assert course.sweep is not None, "it is at a candidate"
            self.waits[course.sweep.item.name] += 1
            self._last = now
        super().learn(course, same)


def case_of(model: str) -> Case:
    """The graph of a model, for a backend that does nothing."""
    made, inputs = MODELS[model]()
    doc = compile_and_see(made, inputs).checkpoints[0]
    return Case.from_checkpoint(replace(doc, extra={**doc.extra, "backend": "eager"}), "compile")


def planted(case: Case, calls: int, seed: int = 1) -> Callable[[Case], bool]:
    """A bug that shows where the targets of some calls are computed one from the other."""
    chance = random.Random(seed)
    longest = max((_path(case, chance) for _ in range(200)), key=len)
    at = sorted(chance.sample(range(len(longest)), min(calls, len(longest))))
    wanted = [longest[number].target for number in at]

    def fails(candidate: Case) -> bool:
        reached: dict[str, int] = {}
        for node in candidate.graph.nodes:
            depth = max((reached.get(name, 0) for name in node.inputs()), default=0)
            if node.is_call and depth < len(wanted) and node.target == wanted[depth]:
                depth += 1
            reached[node.name] = depth
        return max(reached.values(), default=0) == len(wanted)

    return fails


def _path(case: Case, chance: random.Random) -> list[NodeDoc]:
    """Calls at random, each computed from the one before."""
    node = chance.choice([node for node in case.graph.nodes if node.is_call])
    found = [node]
    while operands := [n for n in map(case.graph.by_name.__getitem__, node.inputs()) if n.is_call]:
        node = chance.choice(operands)
        found.append(node)
    return found[::-1]


def reduce(case: Case, pool: Pool, workers: int, clock: Callable[[], float]) -> _Ended:
    """Reduce a case with workers."""
    oracle = PoolOracle(pool, workers)
    search = Search(oracle, BUG)
    waits = search.samples.likelihood = _Waits(clock)
    began = clock()
    found = search.run(case)
    accepted = sum(item.accepted for item in found.passes)
    seconds = clock() - began
    return _Ended(oracle.seen, found.case, accepted, seconds, found.wasted_runs, waits.waits)


def uneven(case: AnyCase) -> float:
    """Between one second and three, by the case."""
    return 1 + 2 * random.Random(case.digest).random()


def simulated(case: Case, calls: int, workers: int, latency: Latency) -> _Ended:
    """Reduce with workers in a simulated clock."""
    pool = SimulatedPool(workers, planted(case, calls), latency)
    return reduce(case, pool, workers, lambda: pool.now)


def slept(case: Case, calls: int, workers: int, seconds: float) -> _Ended:
    """Reduce with threads that sleep."""
    pool = SleepingPool(workers, planted(case, calls), lambda case: seconds)
    try:
        return reduce(case, pool, workers, monotonic)
    finally:
        pool.close()


def row(model: str, calls: int, ends: Sequence[_Ended], workers: Sequence[int]) -> str:
    """A line of the table."""
    first = ends[0]
    assert all(end.seen == first.seen for end in ends), "not the same steps"
    assert all(end.case.to_bytes() == first.case.to_bytes() for end in ends), "not the same result"
    runs = len(first.seen)
    chain = runs / (first.accepted + 1)
    cells = [
        f"{first.seconds / end.seconds:.1f} ({end.wasted})"
        for end, number in zip(ends, workers, strict=True)
        if number > 1
    ]
    head = [f"{model}, {calls} calls", str(runs), f"{first.accepted / runs:.0%}"]
    return f"| {' | '.join([*head, *cells, f'{chain:.1f}'])} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--workers", type=int, action="append")
    parser.add_argument("--sleep", type=float, default=0.0)
    parser.add_argument("--where", action="store_true")
    options = parser.parse_args()
    workers = [1, *(options.workers or [2, 8, 64])]
    print(f"| graph, needed | runs | accepted | {' | '.join(map(str, workers[1:]))} | chain |")
    print("|" + "---|" * (len(workers) + 3))
    for model, calls in _REDUCTIONS:
        if options.models and model not in options.models:
            continue
        case = case_of(model)
        if options.sleep:
            ends = [slept(case, calls, number, options.sleep) for number in workers]
            print(row(model, calls, ends, workers), flush=True)
            continue
        for latency in (lambda case: 1.0, uneven):
            ends = [simulated(case, calls, number, latency) for number in workers]
            print(row(model, calls, ends, workers), flush=True)
            if options.where:
                print(", ".join(f"{name} {n}" for name, n in ends[-1].waits.most_common()))


if __name__ == "__main__":
    main()

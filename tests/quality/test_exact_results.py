"""Reductions that have to end at exactly this; the oracles look at the graph alone."""

from __future__ import annotations

import pytest

from tests.minifier.hand_made import BUG, Predicate, call, case_of, chain, functions_of, ref, tensor
from tests.minifier.hand_made import reaches as flows
from torchreel.minifier.cases.case import Case
from torchreel.minifier.search.search import Search

pytestmark = pytest.mark.quality


@pytest.mark.parametrize(("sin", "cos"), [(170, 330), (10, 20), (0, 499), (490, 495), (250, 251)])
def test_a_path_through_500_nodes_ends_at_its_two_ends(sin: int, cos: int) -> None:
    """torch's own minifier leaves 253 nodes of this chain after 1,486 queries (PEERS, 2.13.0)."""
    functions = ["relu"] * 500
    functions[sin], functions[cos] = "sin", "cos"
    oracle = Predicate(lambda case: flows(case.graph, "sin", "cos"))
    found = Search(oracle, BUG).run(chain(functions))
    assert functions_of(found.case) == ["sin", "cos"]
    assert found.oracle_runs == len(set(oracle.seen)) + 1 + 3  # the start twice, the result again
    assert found.oracle_runs <= 100


def block(calls: list[object], number: int, source: str) -> str:
    """A residual block with a ladder of views: norm, flatten, matmul, unflatten, gelu, add."""
    n = f"b{number}"
    flat = tensor(32, 8)
    calls += [
        call(f"{n}_norm", "layer_norm", ref(source), value=tensor(4, 8, 8)),
        call(f"{n}_flat", "reshape", ref(f"{n}_norm"), [32, 8], value=flat),
        call(f"{n}_mm", "matmul", ref(f"{n}_flat"), ref("w"), value=flat),
        call(f"{n}_unflat", "reshape", ref(f"{n}_mm"), [4, 8, 8], value=tensor(4, 8, 8)),
        call(f"{n}_gelu", "gelu", ref(f"{n}_unflat"), value=tensor(4, 8, 8)),
        call(f"{n}_add", "add", ref(source), ref(f"{n}_gelu"), value=tensor(4, 8, 8)),
    ]
    return f"{n}_add"


def residual_network(blocks: int) -> Case:
    """A stack of residual blocks, a softmax at the end."""
    calls: list[object] = []
    last = "x"
    for number in range(blocks):
        last = block(calls, number, last)
    calls.append(call("softmax", "softmax", ref(last), -1, value=tensor(4, 8, 8)))
    return case_of(calls, ["softmax"], x=tensor(4, 8, 8), w=tensor(8, 8))  # type: ignore[arg-type]


def test_a_residual_network_ends_at_what_matters() -> None:
    """Some gelu reaches some softmax: 2 of 193 nodes (torch's own leaves a tenth)."""
    oracle = Predicate(lambda case: flows(case.graph, "gelu", "softmax"))
    found = Search(oracle, BUG).run(residual_network(32))
    assert functions_of(found.case) == ["gelu", "softmax"]
    assert found.oracle_runs <= 100


def test_two_culprits_in_different_branches_stay() -> None:
    """Both have to be there, not one above the other."""

    def fails(case: Case) -> bool:
        return {"sin", "cos"} <= set(functions_of(case))

    calls = []
    for i in range(40):
        name = "sin" if i == 30 else "relu"
        calls.append(call(f"a{i}", name, ref(f"a{i - 1}" if i else "x")))
        name = "cos" if i == 5 else "relu"
        calls.append(call(f"b{i}", name, ref(f"b{i - 1}" if i else "x")))
    calls.append(call("sum", "add", ref("a39"), ref("b39")))
    found = Search(Predicate(fails), BUG).run(case_of(calls, ["sum"], x=tensor(4, 8)))
    assert sorted(functions_of(found.case)) == ["cos", "sin"]
    assert found.oracle_runs <= 100

"""A compile whose time doubles with each call, reduced within a few times one limit."""

from __future__ import annotations

import pytest
import torch

from tests.minifier.hand_made import chain, functions_of
from tests.minifier.real import case_from, chain_of, shared_worker
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.hangs.growth import Growth
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.hangs.presumed_to_end import EndedCases
from torchreel.minifier.options import RunLimits
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.search.search import Search
from torchreel.store.failures.hang_limit import recorded_limit
from torchreel.store.failures.signature import hang_signature

LIMIT = 3.0
# Calls of which the backend `planted_doubling` needs 4.1 s; of one less it needs 2.0 s.
LEAST = 12


@pytest.mark.slow
def test_a_chain_whose_time_doubles() -> None:
    """It ends at the fewest calls that take the limit, in less than twenty limits."""
    functions = ["sin", "cos", "neg"] * 11
    case = case_from(chain_of(functions), torch.ones(3, 4), backend="planted_doubling")
    worker, signature = shared_worker(), hang_signature("pre_grad")
    worker.look_for(signature, RunLimits(LIMIT))
    found = Search(HangOracle(worker, LIMIT), signature).run(case)
    assert found.status == "fixpoint"
    assert len(functions_of(found.case)) == LEAST
    assert found.seconds < 20 * LIMIT
    assert worker.judge(found.case).verdict == "same"  # which waits for the whole limit


class _Slow:
    """Ends where the chain is too short, after as long as a case of its calls takes."""

    def __init__(self, least: int) -> None:
        self.least, self.waited = least, 0.0

    def judge_hang(self, case: AnyCase, seconds: float, stack: frozenset[str]) -> OracleReport:
        """A hang of all that has `least` calls; the stack is always the same."""
        took = 0.1 + 100.0 * 2.0 ** (case.total_call_nodes - self.least)
        if stack and took > seconds > 0:
            self.waited += seconds
            return OracleReport("same", lasting=False, presumed=True, stack=stack)
        self.waited += min(took, 100.0)
        if took > 100:
            return OracleReport("same", stack=frozenset({"f"}), seconds=100.0)
        return OracleReport("none", seconds=took)


@pytest.mark.parametrize("least", [1, 2, 5, 12, 20, 32, 33])
def test_wherever_the_minimum_is(least: int) -> None:
    """The result is proved, and the waiting is a few times the limit of 100 s."""
    oracle = _Slow(least)
    functions = ["sin", "cos", "neg"] * 11
    found = Search(HangOracle(oracle, 100.0), hang_signature("pre_grad")).run(chain(functions))
    assert len(functions_of(found.case)) == least
    assert oracle.waited < 2000


def test_growth_is_known_from_two_slow_cases() -> None:
    """Before that, nobody knows; where nothing is slow, never."""
    growth = Growth()
    growth.ended(0, 0.1)
    growth.ended(4, 0.5)
    assert growth.expected(5) is None
    growth.ended(6, 1.7)
    assert growth.expected(8) == pytest.approx(6.5, rel=0.01)


def test_cases_of_the_same_calls_end_as_well() -> None:
    """In any order, and with fewer; not with one that no case had, unless many ended."""
    ends = EndedCases()
    ends.ended(chain(["sin", "cos", "sin"]))
    assert ends.covers(chain(["sin", "sin", "cos"]))
    assert ends.covers(chain(["cos"]))
    assert not ends.covers(chain(["sin", "sin", "sin"]))
    ends.ended(chain(["cos", "cos", "cos"]))
    ends.ended(chain(["neg", "cos", "cos"]))
    assert ends.covers(chain(["sin", "sin", "sin"]))
    ends.hung(chain(["tan", "tan", "tan"]))
    assert not ends.covers(chain(["sin", "sin", "sin"]))


def test_the_limit_of_a_recording() -> None:
    """As its failure says."""
    assert recorded_limit("The stage was not over after 2.5 s.") == 2.5

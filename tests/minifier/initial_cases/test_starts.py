"""The cases that a reduction starts with."""

from pathlib import Path

import pytest
import torch
import torch._dynamo

from tests.formats.compiles import compile_and_see
from tests.minifier import planted  # noqa: F401  (it registers the backend)
from tests.minifier.real import PLANTED
from tests.minifier.recorded import record
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.initial_cases.failures import (
    graphs_beside_program,
    starting_cases,
    without_runtime_asserts,
)
from torchreel.minifier.options import MinifyOptions
from torchreel.store import Store, queries


def branches(x: torch.Tensor) -> torch.Tensor:
    """Return what one of two bodies gives, through what the backend refuses."""
    found = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    return torch.cos(torch.sin(found))


def straight(x: torch.Tensor) -> torch.Tensor:
    """Return the same without bodies."""
    return torch.cos(torch.sin(x + 1))


@pytest.mark.parametrize("has_bodies", [True, False])
def test_a_graph_with_bodies_comes_after_its_program(tmp_path: Path, has_bodies: bool) -> None:
    """Dynamo has rules for bodies that no edit of a graph knows."""
    function = branches if has_bodies else straight
    path = record(tmp_path / "run.db", function, torch.ones(3), backend="planted_path")
    with Store.open(path) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        failure = queries.failure_of(store, compile)
        assert failure is not None
        options = [MinifyOptions(trust=trust, imports=(PLANTED,)) for trust in (False, True)]
        confined, trusted = [starting_cases(store, compile, failure, one) for one in options]
        beside = graphs_beside_program(store, compile, failure, (PLANTED,))
    assert all(isinstance(case, Case) for case in confined)
    programs = [case for case in trusted if isinstance(case, SourceCase)]
    assert bool(programs) == has_bodies
    assert list(trusted) == [*programs, *confined]
    assert beside == (list(confined) if has_bodies else [])
    assert all("torch.cond(" in case.text for case in programs)


def test_runtime_asserts_are_left_out_and_nothing_else() -> None:
    """Dynamo's own asserts may be false where it is Dynamo that was wrong."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.unique(x) * y

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        seen = compile_and_see(fn, torch.arange(5), torch.arange(5), fullgraph=True)
    case = Case.from_checkpoint(seen.checkpoints[0], "run", imports=(), lean=True)
    before = [node.target for node in case.checkpoint.graph.nodes]
    after = [node.target for node in without_runtime_asserts(case).checkpoint.graph.nodes]
    gone = {"op:aten._assert_scalar.default"}
    assert gone <= set(before), "the program has no runtime assert to leave out"
    assert after == [target for target in before if target not in gone]

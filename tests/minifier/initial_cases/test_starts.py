"""The cases that a reduction starts with."""

import torch
import torch._dynamo

from tests.formats.compiles import compile_and_see
from torchreel.minifier.cases.case import Case
from torchreel.minifier.initial_cases.failures import without_runtime_asserts


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

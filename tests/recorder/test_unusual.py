"""Values that few programs have: nothing of a recording is lost for them."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.overrides import BaseTorchFunctionMode

from tests.recorder.conftest import Record
from torchreel.store import queries


def test_a_source_without_a_name_has_that_of_its_class(record: Record) -> None:
    def without_its_mode(x: torch.Tensor) -> torch.Tensor:
        mode = torch._C._pop_torch_function_stack()
        y = x + 1
        torch._C._push_on_torch_function_stack(mode)
        return y

    def program() -> None:
        with BaseTorchFunctionMode():
            torch.compile(without_its_mode, backend="eager")(torch.ones(2))

    log = record(program)
    assert log.lost() == []
    assert queries.events(log.store, log.compile, "output_graph.side_effect")


def test_a_functional_view_whose_base_was_written_to_is_described(record: Record) -> None:
    def f(a: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        view = a.view(-1)
        with torch.no_grad():
            a.set_(other)
            view.mul_(2)
        return a + other

    def program() -> None:
        mode = FakeTensorMode()
        with FunctionalTensorMode():
            inputs = [
                FunctionalTensor.to_functional(
                    mode.from_tensor(torch.ones(3, 3, requires_grad=True), static_shapes=True)
                )
                for _ in range(2)
            ]
            with pytest.raises(RuntimeError, match="frozen storage"):
                torch.compile(f, backend="eager")(*inputs)

    log = record(program)
    assert log.lost() == []
    last = log.compiles[-1]
    assert [row.entry for row in queries.checkpoints(log.store, last)] == ["graph"]


def test_an_export_of_a_boolean_item_keeps_its_graph(record: Record) -> None:
    class Item(torch.nn.Module):
        def forward(self, flag: torch.Tensor) -> torch.Tensor:
            return torch.tensor([flag.item()])

    log = record(lambda: torch.export.export(Item(), (torch.tensor([True]),)))
    assert log.lost() == []
    assert [row.stage for row in queries.graphs(log.store, log.compile)] == ["joint"]

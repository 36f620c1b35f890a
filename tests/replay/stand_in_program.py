"""Checks of the CUDA device that stands in: what it computes is what the CPU computes.

`python -m tests.replay.stand_in_program` prints the name of each check that holds.  It takes a
process of its own, since the device is there for good.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import torch

from torchreel.replay.imposed.device import libraries

CUDA = "cuda"


def views_share_memory() -> None:
    base = torch.arange(12.0, device=CUDA).view(3, 4)
    base[1].fill_(9)
    base.as_strided((2, 2), (1, 1)).add_(100)
    view = base[1:]
    view.mul_(2)
    assert view._base is base._base
    expected = torch.tensor([[100, 201, 102, 3], [18, 18, 18, 18], [16, 18, 20, 22.0]])
    assert torch.equal(base.cpu(), expected)
    del base
    assert view.sum().item() == 148


def views_in_inference_mode() -> None:
    made = torch.ones(3, device=CUDA)
    with torch.inference_mode():
        assert made.view(3).sum().item() == 3
        assert made[0].item() == 1
        assert (made + 1).is_inference()


def results_grow() -> None:
    out = torch.empty(0, device=CUDA)
    torch.add(torch.ones(3, device=CUDA), 1, out=out)
    assert out.tolist() == [2, 2, 2]
    turned = torch.empty(3, 4, device=CUDA).t()
    assert turned.resize_(4, 3).stride() == (1, 4)
    assert out.resize_(5)[:3].tolist() == [2, 2, 2]


def another_memory_is_set() -> None:
    large, small = torch.arange(500000.0, device=CUDA), torch.empty(0, device=CUDA)
    small.set_(large)  # type: ignore[call-overload]
    assert small.sum().item() == large.sum().item()
    assert small.untyped_storage().nbytes() == 2000000
    part = torch.empty(1, device=CUDA).set_(large.untyped_storage(), 3, (2,), (2,))  # type: ignore[call-overload]
    assert part.tolist() == [3, 5]
    host = torch.ones(2)
    host.set_(small)  # type: ignore[call-overload]
    del large, small
    assert host[:3].tolist() == [0, 1, 2]


def copies_of_storages() -> None:
    made = torch.ones(2, device=CUDA)
    again = copy.deepcopy(made)
    again.add_(1)
    assert (made.tolist(), again.tolist(), again.device.type) == ([1, 1], [2, 2], CUDA)


def zeros_without_memory() -> None:
    assert torch._efficientzerotensor((3,), device=CUDA).tolist() == [0, 0, 0]


def conjugates_and_negatives() -> None:
    made = torch.tensor([1 + 2j], device=CUDA)
    assert made.conj().is_conj()
    assert made.conj().imag.is_neg()
    assert (made.conj() * 2).tolist() == [2 - 4j]
    assert made.conj().imag.tolist() == [-2]


def gradients() -> None:
    weights = torch.ones(3, 3, device=CUDA, requires_grad=True)
    (weights.t() @ weights).sum().backward()  # type: ignore[no-untyped-call]
    assert weights.grad is not None
    assert weights.grad.device.type == CUDA
    assert weights.grad.cpu().eq(6).all()


def lists_of_tensors() -> None:
    made = [torch.ones(2, device=CUDA) for _ in range(3)]
    torch._foreach_add_(made, 1)
    assert [one.tolist() for one in made] == [[2, 2]] * 3
    made[0][torch.tensor([1], device=CUDA)] = 7
    assert made[0].tolist() == [2, 7]


def an_error_leaves_the_device() -> None:
    for wrong in (lambda d: torch.bincount(torch.tensor([-1], device=d)), torch.empty(0).to):
        with contextlib.suppress(RuntimeError):
            wrong("cuda:1")
        assert torch.empty(1, device=CUDA).device.index == 0


def no_such_device() -> None:
    _raises(lambda: torch.empty(2, device="cuda:5"), "invalid device ordinal")


def memory_that_is_not_there() -> None:
    huge = torch.empty(1 << 50, device=CUDA)
    assert huge.view(1 << 25, 1 << 25).shape == (1 << 25, 1 << 25)
    _raises(lambda: huge.sum(), "had not the")
    _raises(lambda: torch.zeros(1 << 50, device=CUDA), "had not the")


def pinned_memory() -> None:
    assert torch.ones(3, pin_memory=True).tolist() == [1, 1, 1]
    assert torch.ones(3, device=CUDA).to("cpu", non_blocking=True).tolist() == [1, 1, 1]


def _raises(function: Callable[[], object], text: str) -> None:
    said = ""
    try:
        function()
    except RuntimeError as error:
        said = str(error)
    assert text in said, said


CHECKS = (
    views_share_memory, views_in_inference_mode, results_grow, another_memory_is_set,
    copies_of_storages, zeros_without_memory, conjugates_and_negatives, gradients, lists_of_tensors,
    an_error_leaves_the_device, no_such_device, memory_that_is_not_there, pinned_memory,
)  # fmt: skip


if __name__ == "__main__":
    from contextlib import ExitStack

    from torchreel.replay.imposed.device import answers

    libraries.load(2)
    with ExitStack() as stack:
        answers._impose_absent(stack, answers.Known({"devices": [{"name": "a"}, {"name": "b"}]}))
        for check in CHECKS:
            check()
            print(check.__name__, flush=True)

"""Whether a tensor is a wrapper is asked of its class, not of the program's own code."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.testing._internal.two_tensor import TwoTensor

from torchreel.torch_compat.tensors.fake_tensors import is_wrapper_subclass


class _Answering(torch.Tensor):
    """Answers for each attribute that it has not."""

    asked: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return None


def test_a_subclass_that_answers_to_any_name_is_no_wrapper() -> None:
    _Answering.asked.clear()
    assert not is_wrapper_subclass(_Answering([1.0]))
    assert _Answering.asked == []
    assert not is_wrapper_subclass(torch.ones(1))
    assert is_wrapper_subclass(TwoTensor(torch.ones(1), torch.ones(1)))

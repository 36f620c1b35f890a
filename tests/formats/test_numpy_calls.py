"""What Dynamo writes for NumPy code, by its name and back."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch._dynamo import utils

from torchreel.formats import numpy_calls, targets

CALLS = {
    "numpy:function:torch._numpy.concatenate": utils.numpy_to_tensor_wrapper(
        torch._numpy.concatenate
    ),
    "numpy:function:torch._numpy.linalg.norm": utils.numpy_to_tensor_wrapper(
        torch._numpy.linalg.norm
    ),
    "numpy:function:torch._numpy.float32": utils.numpy_to_tensor_wrapper(torch._numpy.float32),
    "numpy:operator:_operator.iadd": utils.numpy_operator_wrapper(operator.iadd),
    "numpy:operator:builtins.abs": utils.numpy_operator_wrapper(abs),
    "numpy:method:astype": utils.numpy_method_wrapper("astype"),
    "numpy:attribute": utils.numpy_attr_wrapper,
}


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_known_by_its_name(text: str) -> None:
    assert targets.encode_target(CALLS[text]) == text
    found = targets.decode_target(text)
    assert type(found) is type(CALLS[text])
    assert targets.encode_target(found) == text


def test_each_call_has_a_wrapper_of_its_own_as_in_dynamo() -> None:
    """FX names what it calls by identity."""
    first, second = (targets.decode_target("numpy:method:sum") for _ in range(2))
    assert first is not second


def test_what_is_called_computes() -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 4.0]])

    def call(name: str, *args: Any) -> Any:
        return targets.decode_target(f"numpy:{name}")(*args)

    assert torch.equal(call("function:torch._numpy.sort", x), x.sort().values)
    assert torch.equal(call("operator:_operator.getitem", x, (slice(None), 0)), x[:, 0])
    assert call("method:astype", x, "int32").dtype is torch.int32
    assert torch.equal(call("attribute", x, "T"), x.T)


@pytest.mark.parametrize(
    "target",
    [
        utils.numpy_to_tensor_wrapper(print),
        utils.numpy_to_tensor_wrapper(torch._numpy.from_dlpack),
        utils.numpy_to_tensor_wrapper(torch._numpy.ndarray),
        utils.numpy_operator_wrapper(eval),
        utils.numpy_operator_wrapper(getattr),
        utils.numpy_method_wrapper("__class__"),
    ],
)
def test_around_anything_else_it_has_no_portable_form(target: Any) -> None:
    assert targets.encode_target(target).startswith("opaque:")


def test_every_function_is_one_that_numpy_has_and_whose_results_are_arrays() -> None:
    import numpy

    found = numpy_calls.array_functions()
    assert len(found) > 250
    for name in found:
        value: Any = numpy
        for part in name.removeprefix("torch._numpy.").split("."):
            value = getattr(value, part)
        assert callable(value), name
    assert not {"torch._numpy.dtype", "torch._numpy.finfo", "torch._numpy.result_type"} & set(found)

"""Stand-ins for operators: what a store may not say of one, and what a stand-in answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats.operators import stand_ins
from torchreel.formats.operators.answers import OperatorAnswer, OperatorCall
from torchreel.store.documents.jsontypes import Json

TENSOR: dict[str, Json] = {
    "k": "tensor", "size": [4, "s0"], "stride": ["s0", 1], "dtype": "float32", "device": "cpu",
}  # fmt: skip


def described(name: str, **other: Json) -> dict[str, Json]:
    """The description of an operator with one call."""
    call: Json = {"args": [{"value": TENSOR}], "kwargs": {}, "result": TENSOR}
    return {
        name: {
            "schema": f"{name.replace('.', '::', 1).rpartition('.')[0]}(Tensor x) -> Tensor",
            "tags": [],
            "kernels": ["CPU"],
            "calls": [call],
            **other,
        }
    }


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (described("aten.brand_new.default"), "torch's own"),
        (described("prims.brand_new.default"), "torch's own"),
        (described("evil.one.default", schema="evil::other(Tensor x) -> Tensor"), "schema"),
        (described("evil.two.default", schema="evil::two(Tensor x -> "), "schema"),
        (described("evil.three.default", schema="evil::three(" + "int x, " * 9999), "schema"),
        ({"evil; import os": {}}, "malformed"),
        ({"evil.four.default": 3}, "malformed"),
        (described("evil.five.default", calls=["no call"]), "malformed"),
    ],
)
def test_what_a_store_may_not_say(table: Json, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        stand_ins.register(table)


@pytest.mark.parametrize(
    "how", [{"decomposes": True}, {"kernels": ["CompositeImplicitAutograd"]}], ids=str
)
def test_what_the_compiler_looks_into_is_code(how: dict[str, Any]) -> None:
    with pytest.raises(UntrustedError, match="--import"):
        stand_ins.register(described("evil.six.default", **how))


def test_an_operator_that_is_there_is_not_replaced() -> None:
    library = torch.library.Library("reelstand", "FRAGMENT")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", lambda x: x + 1, "CPU")
    assert stand_ins.register(described("reelstand.own.default")) == ()
    assert torch.ops.reelstand.own(torch.ones(1)).item() == 2


def test_a_stand_in_answers_with_zeros_of_the_recorded_sizes() -> None:
    table = described("reelstand.answering.default")
    assert stand_ins.register(table) == ("reelstand.answering.default",)
    assert stand_ins.register(table) == ("reelstand.answering.default",)
    made = torch.ops.reelstand.answering(torch.ones(4, 7))
    assert (made.shape, made.abs().sum().item()) == ((4, 7), 0)


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        ([4, "s0"], ["s0", 1], ((5, 7), (7, 1))),
        (["s0", 4], [1, "s0"], ((7, 5), (1, 7))),
        (["Mul(2, s0)"], [1], ((14,), (1,))),
        ([4, 1], [1, 1], ((5, 1), (1, 1))),
        ([9, "u3"], ["u3", 1], ((9, 1), (1, 1))),
        ([9], [2], ((9,), (2,))),
    ],
)
def test_sizes_are_those_of_the_arguments(size: Json, stride: Json, expected: object) -> None:
    """By place, by symbol, or as recorded; one that is nobody's depends on data."""
    result = {**TENSOR, "size": size, "stride": stride}
    call = OperatorCall.of({"args": [{"value": TENSOR}], "result": result})
    made = OperatorAnswer(call, [torch.ones(5, 7, dtype=torch.float64)], lambda: 1).result()
    assert (tuple(made.shape), made.stride()) == expected
    assert made.dtype is torch.float64

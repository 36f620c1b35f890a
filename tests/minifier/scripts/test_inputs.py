"""The lines of `def inputs()` make what the oracle's own inputs were, to the bit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from tests.formats.compiles import compile_and_see
from tests.minifier.hand_made import NO_SYMBOLS, case_of, tensor
from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.tensors import Encoder, synthesise_all
from torchreel.minifier.scripts.inputs import InputLines
from torchreel.store.documents.jsontypes import Json

Descriptions = list[Json]


def _described(*values: object) -> Descriptions:
    encoder = Encoder()
    return [encoder.describe(value) for value in values]


def _shared() -> Descriptions:
    base = torch.randn(24)
    return _described(base.view(4, 6), base[3:9], base.view(4, 6).t())


def _gradients() -> Descriptions:
    leaf = torch.randn(3, requires_grad=True)
    return _described(leaf, leaf * 2, torch.nn.Parameter(torch.randn(2)), leaf[1:])


def _recorded(*inputs: torch.Tensor) -> Descriptions:
    """What a recording says of inputs that share memory."""
    (doc,) = compile_and_see(lambda *given: [x + 1 for x in given], *inputs).checkpoints
    return list(doc.inputs)


def _views(*, followed: bool = True) -> Descriptions:
    base = torch.randn(4, 5, requires_grad=True).sin()
    with torch.set_grad_enabled(followed):
        return _recorded(base[1:], base, base.view(20)[3:9])


def _of_no_input() -> Descriptions:
    base = torch.randn(5, 4).t()
    return _recorded(base[1:], base[:, 2:].t())


def _apart() -> Descriptions:
    base = torch.randn(20)
    return _recorded(base[:10], base.detach()[5:15], base.detach())


PLAIN, LEAF = torch.randn(6), torch.randn(6, requires_grad=True)
SHARED: dict[str, Descriptions] = {
    "views of one that is computed": _views(),
    "views that autograd does not follow": _views(followed=False),
    "views of what is no input": _of_no_input(),
    "views of tensors that share memory": _apart(),
    "view of another dtype": _recorded(PLAIN, PLAIN.view(torch.int32)[1:]),
    "leaf and its data": _recorded(LEAF, LEAF.detach()[1:]),
}
INPUTS: dict[str, Descriptions] = {
    "plain": _described(torch.randn(4, 8), torch.randn(40), torch.randn(())),
    "dtypes": _described(*(
        torch.ones(3, 2, dtype=dtype)
        for dtype in (
            torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
            torch.bool, torch.complex64, torch.complex128,
        )
    )),
    "strides": _described(
        torch.randn(4, 8).t(), torch.randn(4, 8)[:, 2:5], torch.randn(3, 1).expand(3, 5),
        torch.empty_strided((5, 1), (1, 5)), torch.randn(20)[3::4],
    ),
    "shared storage": _shared(),
    **SHARED,
    "empty": _described(torch.randn(4, 0), torch.randn(0), torch.randn(3, 0, 2).transpose(0, 2)),
    "gradients": _gradients(),
    "zero tensor": _described(torch._efficientzerotensor((3, 2))),
    "conjugate": _described(torch.randn(2, dtype=torch.complex64).conj()),
    "scalars": _described(3, 2.5, True, torch.randn(2)),
}  # fmt: skip


def _made(doc: CheckpointDoc, descriptions: Descriptions) -> list[object]:
    names = [f"x{number}" for number in range(len(descriptions))]
    source = "\n".join(["torch.manual_seed(0)", *InputLines(doc, descriptions).lines(names)])
    scope: dict[str, object] = {"torch": torch}
    exec(source, scope)
    return [scope[name] for name in names]


def _facts(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    return (
        type(value), value.dtype, tuple(value.shape), value.stride(), value.storage_offset(),
        value.requires_grad, value.is_leaf, value.is_conj(), value._is_zerotensor(),
        value.untyped_storage().nbytes(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", INPUTS)
def test_they_are_what_the_oracle_had(kind: str) -> None:
    descriptions = INPUTS[kind]
    doc = case_of([], []).checkpoint
    expected = synthesise_all(descriptions, seed=0, hints={}, table={})
    made = _made(doc, descriptions)
    for one, other in zip(expected, made, strict=True):
        assert _facts(one) == _facts(other)
        if kind in SHARED:
            assert _base(one, expected) == _base(other, made)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            assert torch.equal(one, other)


def _base(value: object, beside: list[object]) -> object:
    """Which input a tensor is a view of; of another tensor its layout."""
    if not isinstance(value, torch.Tensor) or value._base is None:
        return None
    places = [place for place, other in enumerate(beside) if other is value._base]
    return places or [_facts(value._base)]


def test_a_view_has_the_base_that_it_had_in_the_program() -> None:
    base = torch.randn(20)
    doc = case_of([], []).checkpoint
    first, whole, second = _made(doc, _recorded(base[:10], base, base[5:]))
    assert first._base is whole  # type: ignore[attr-defined]
    assert second._base is whole  # type: ignore[attr-defined]
    one, other, detached = _made(doc, _apart())
    assert one._base is not other._base  # type: ignore[attr-defined]
    assert detached._base is None  # type: ignore[attr-defined]


def test_what_shared_a_storage_shares_one_again() -> None:
    first, second, third = _made(case_of([], []).checkpoint, _shared())
    pointers = {x.untyped_storage().data_ptr() for x in (first, second, third)}  # type: ignore[attr-defined]
    assert len(pointers) == 1


def test_a_tensor_on_a_device_that_is_not_here_is_refused() -> None:
    elsewhere = {**_shared()[0], "device": "cuda:99"}
    with pytest.raises(UnsupportedError, match="no tensor on cuda:99 can be made on this machine"):
        synthesise_all([elsewhere], seed=0, hints={}, table={})


def _symbolic() -> Mapping[str, Json]:
    return {
        **NO_SYMBOLS,
        "symbols": {"s0": ["integer", "positive"]},
        "state": {"backed_var_to_val": [["s0", 6]]},
    }


def test_symbols_take_their_hints() -> None:
    from dataclasses import replace

    doc = replace(case_of([], []).checkpoint, shape_env=_symbolic())
    descriptions: Descriptions = [tensor("s0", 8), {"k": "symint", "expr": "s0"}]
    made, size = _made(doc, descriptions)
    assert isinstance(made, torch.Tensor)
    assert (tuple(made.shape), size) == ((6, 8), 6)


@pytest.mark.parametrize("kind", ["opaque", "subclass"])
def test_what_has_no_line_of_source_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError):
        _made(case_of([], []).checkpoint, [{"k": kind, "type": "x", "reason": "y"}])

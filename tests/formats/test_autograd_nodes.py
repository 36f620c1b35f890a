"""The backward of an autograd node by its name, in a process that captured none like it."""

import subprocess
import sys

import pytest
import torch
from torch._dynamo import compiled_autograd

from torchreel.errors import RefusedError, UnsupportedError
from torchreel.formats import autograd_nodes, backward_prologues, targets

NODES = (
    "validate_outputs", "AccumulateGrad", "PowBackward0", "AddmmBackward0", "ConvolutionBackward0",
    "NativeLayerNormBackward0", "NllLossBackward0", "IndexBackward0", "AcoshBackward1",
    "ScaledDotProductFlashAttentionForCpuBackward0", "torch::autograd::CopyBackwards",
)  # fmt: skip
FACTS = (
    '{"bases":1,"deterministic":null,"formats":["contiguous_format",[[2,3],[3,1]]],'
    '"inputs":[false],"mutates":false,"outputs":[false,true],"rng":false,"tokens":0}'
)


@pytest.mark.parametrize("node", NODES)
def test_the_function_of_a_node_is_known_by_its_name(node: str) -> None:
    text = f"fn:{autograd_nodes.PREFIX}{node}"
    found = targets.decode_target(text)
    assert isinstance(found, compiled_autograd.Op)
    assert found is getattr(compiled_autograd.ops, node)
    assert targets.encode_target(found) == text


def test_the_function_computes_what_autograd_does() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (expected,) = torch.autograd.grad(x.pow(3).sum(), x)
    function = targets.decode_target(f"fn:{autograd_nodes.PREFIX}PowBackward0")
    (found,) = function([torch.ones(2, 2)], (True,), 3, x.detach())  # type: ignore[misc]
    assert torch.equal(found, expected)


@pytest.mark.slow
def test_nothing_that_a_process_counts_is_changed() -> None:
    script = """
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
from torchreel.formats import autograd_nodes
assert autograd_nodes.resolve(autograd_nodes.PREFIX + "SinBackward0") is not None
print(next(compiled_autograd.COMPILE_COUNTER), dict(counters["compiled_autograd"]),
      compiled_autograd.compiled_autograd_enabled)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "0 {} False", found.stderr


@pytest.mark.parametrize(
    "name",
    ["custom_function_name_counter", "add", "get", "__class__", "__init__", "NoSuchBackward0",
     "CppNodeOfSomebody0", "PowBackward0.fn", "FromFileBackward0", "x::PowBackward0", ""],
)  # fmt: skip
def test_no_other_name_is_resolved(name: str) -> None:
    compiled_autograd.ops.OfSomebodyBackward0 = print  # type: ignore[attr-defined]
    try:
        for text in (name, "OfSomebodyBackward0"):
            with pytest.raises(RefusedError):
                targets.decode_target(f"fn:{autograd_nodes.PREFIX}{text}")
    finally:
        del compiled_autograd.ops.OfSomebodyBackward0  # type: ignore[attr-defined]


def test_a_prologue_chooses_gradients_and_gives_them_their_format() -> None:
    prologue = targets.decode_target(f"{backward_prologues.TAG}{FACTS}")
    saved, base = torch.ones(1), torch.ones(3, 2).t()
    other, out = torch.zeros(5), torch.ones(2, 2).t()
    found = prologue([saved], [7], [], [other, other, out, base])
    assert isinstance(found, list)
    assert found[0] == 7
    assert found[1] is saved
    assert [tensor.stride() for tensor in found[2:]] == [(2, 1), (3, 1)]
    with pytest.raises(AssertionError, match="expected 4 grad_outs"):
        prologue([saved], [7], [], [other, out])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FACTS, "[]"),
        (FACTS, "{"),
        ('"bases":1', '"bases":-1'),
        ('"bases":1', '"bases":1000000000'),
        ('"bases":1', '"bases":"0);import os"'),
        ('"tokens":0', '"tokens":"[])\\nimport os"'),
        ('"contiguous_format"', '"load"'),
        ("[3,1]", '["x",1]'),
        ("[3,1]", "[3]"),
        ('"inputs":[false]', '"inputs":"x"'),
        ('"outputs":[false,true]', '"outputs":[false,false]'),
    ],
)
def test_a_malformed_prologue_is_refused(old: str, new: str) -> None:
    assert old in FACTS
    with pytest.raises(UnsupportedError):
        targets.decode_target(f"{backward_prologues.TAG}{FACTS.replace(old, new)}")

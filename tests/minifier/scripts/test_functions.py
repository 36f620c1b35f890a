"""A graph as a function: it reads as if a person wrote it, and computes what the graph does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import EagerAndRecordGraphs

from torchreel.errors import TorchreelError
from torchreel.formats.graphs.codec import encode_graph
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.scripts.functions import function
from torchreel.minifier.scripts.names import variables


def captured(fn: object, *args: object, **options: object) -> GraphDoc:
    """The Dynamo graph of a function."""
    backend = EagerAndRecordGraphs()
    torch._dynamo.reset()
    torch.compile(fn, backend=backend, fullgraph=True, **options)(*args)  # type: ignore[call-overload]
    return encode_graph(backend.graphs[0])


def source(doc: GraphDoc) -> list[str]:
    return function("fn", doc, bare=True).lines


def test_functions_methods_operators_and_indices() -> None:
    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        hidden = F.silu(x @ weight) + 1.5
        hidden = hidden.view(2, -1)[:, 1:3]
        return F.gelu(-hidden, approximate="tanh").to(torch.float16)

    assert source(captured(fn, torch.randn(4, 4), torch.randn(4, 4))) == [
        "def fn(x, weight):",
        "    silu = F.silu(x @ weight)",
        "    view = (silu + 1.5).view(2, -1)",
        "    neg = -view[:, 1:3]",
        '    return F.gelu(neg, approximate="tanh").to(torch.float16)',
    ]


def test_items_are_set_and_results_without_users_are_not_named() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0] = 1.0
        y.add_(2)
        return y

    assert source(captured(fn, torch.randn(3))) == [
        "def fn(x):",
        "    y = x.clone()",
        "    y[0] = 1.0",
        "    y.add_(2)",
        "    return y",
    ]


def test_bodies_of_cond_are_nested_functions() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    lines = source(captured(fn, torch.randn(3)))
    assert "    def cond_true_0(x):" in lines or any("def cond_true" in line for line in lines)
    _agrees(fn, torch.randn(3))


def test_a_while_loop_closes_over_what_is_not_carried() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def fn(x: torch.Tensor) -> object:
        step = x * 2

        def goes_on(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return i < 3

        def body(i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, v + step

        return while_loop(goes_on, body, (torch.tensor(0), x))[1]

    _agrees(fn, torch.randn(3))


def test_sizes_are_read_off_the_inputs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.size(0) * 2, -1) + x.size(0)

    lines = source(captured(fn, torch.randn(6, 4), dynamic=True))
    assert lines[0] == "def fn(x):"
    assert any(".size(0)" in line for line in lines)
    _agrees(fn, torch.randn(6, 4), dynamic=True)


def _agrees(fn: object, *args: torch.Tensor, **options: object) -> None:
    """What was written computes what was recorded."""
    from torch._higher_order_ops.while_loop import while_loop

    made = function("fn", captured(fn, *args, **options), bare=True)
    scope: dict[str, object] = {"torch": torch, "F": F, "while_loop": while_loop}
    exec("\n".join(made.lines), scope)
    expected, got = fn(*args), scope["fn"](*args)  # type: ignore[operator]
    assert torch.equal(expected, got)


@pytest.mark.parametrize(
    "target",
    [
        "fn:os.system", "fn:builtins.eval", "fn:torch.hub.load", "fn:torch.load",
        "op:evil.f.default", "opaque:x.y", "fn:torch.relu(x); import os #", "method",
    ],
)  # fmt: skip
def test_a_hostile_target_is_refused(target: str) -> None:
    hostile = NodeDoc("y", "call_function", target, [{"n": "x"}])
    with pytest.raises(TorchreelError):
        function("fn", _around(hostile))


@pytest.mark.parametrize(
    "name", ["import os; os.abort()", "class", "x\n    exit()", "é", "y" * 99, ""]
)
def test_a_hostile_name_becomes_a_harmless_one(name: str) -> None:
    doc = _around(NodeDoc(name, "call_function", "fn:torch.relu", [{"n": "x"}]))
    assert variables(doc)[name] == "y"
    assert function("fn", doc).lines == ["def fn(x):", "    return (torch.relu(x),)"]


def _around(node: NodeDoc) -> GraphDoc:
    placeholder = NodeDoc("x", "placeholder", "x")
    output = NodeDoc("output", "output", "output", [{"t": [{"n": node.name}]}])
    return GraphDoc((placeholder, node, output))

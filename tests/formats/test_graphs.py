"""Real Dynamo graphs survive the way through data, with their inputs and their ShapeEnv."""

from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch._dynamo.source import AttrSource, LocalSource
from torch._guards import Source
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor.virtualized import V

from tests.formats.compiles import compile_and_see
from torchreel.errors import UnsupportedError
from torchreel.formats import sources
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.codec import encode_graph
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.shape_env import snapshots
from torchreel.replay.child.restore import restore
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2.5 + x.relu().clamp(min=-1, max=3)


def views(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = x.view(x.shape[0], -1).chunk(2, dim=1)
    return (a + b).transpose(0, 1)[1:, None].contiguous() + y[..., ::2].sum()


def in_place(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x += 1
    x[0] = 3
    x.mul_(2)
    return x


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x,))


def loop(x: torch.Tensor) -> Any:
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (torch.tensor(0), x))


def attention(q: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.0, is_causal=True)


def no_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y + F.layer_norm(x, x.shape[-1:]) + torch.arange(x.shape[-1])


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda v: v * v.sum())(x)


def keywords(x: torch.Tensor) -> torch.Tensor:
    """Keywords that are called as what stands for a value in the data."""
    y = torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]) + torch.special.polygamma(n=1, input=x)
    return torch.diff(y, n=2).sum() + x.new_zeros(size=(3,)) + x.to(dtype=torch.float64).sum()


CASES = {
    "keywords": (keywords, (torch.rand(4, 6) + 1,)),
    "pointwise": (pointwise, (torch.randn(4, 6),)),
    "views": (views, (torch.randn(4, 2, 6), torch.randn(3, 8))),
    "in_place": (in_place, (torch.randn(4, 6),)),
    "branches": (branches, (torch.randn(4, 6),)),
    "loop": (loop, (torch.randn(4, 6),)),
    "attention": (attention, (torch.randn(2, 2, 8, 4),)),
    "no_gradient": (no_gradient, (torch.randn(4, 6, requires_grad=True),)),
    "mapped": (mapped, (torch.randn(4, 6),)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_restored_graph_is_the_recorded_one(name: str, dynamic: bool) -> None:
    fn, inputs = CASES[name]
    seen = compile_and_see(fn, *inputs, dynamic=dynamic, fullgraph=True)
    for doc, text in zip(seen.checkpoints, seen.readable, strict=True):
        assert doc.opaque() == []
        restored = restore(doc)
        assert restored.lost == []
        again = encode_graph(restored.graph)
        for ours, theirs in zip(again.nodes, doc.graph.nodes, strict=True):
            # What a level of vmap held is an ordinary fake tensor now, with a storage.
            assert ours.to_json() == theirs.to_json() or name == "mapped"
            assert (ours.target, ours.args, ours.kwargs) == (
                theirs.target, theirs.args, theirs.kwargs,
            )  # fmt: skip
        assert again.to_bytes() == doc.graph.to_bytes() or name == "mapped"
        assert restored.graph.print_readable(print_output=False) == text
        assert len(restored.inputs) == len(doc.graph.placeholders)


@pytest.mark.parametrize("name", CASES)
def test_the_shape_env_is_equal_by_torchs_own_check(name: str) -> None:
    """`ShapeEnv.check_equal` against the living one, while the backend has it in hand."""
    fn, inputs = CASES[name]
    checked: list[int] = []

    def check(gm: torch.fx.GraphModule, doc: CheckpointDoc) -> None:
        from torch._guards import TracingContext

        live = TracingContext.get().fake_mode
        assert live is not None
        table = snapshots.decode_symbols(doc.shape_env)
        again = snapshots.new_shape_env(doc.shape_env)
        snapshots.restore(again, doc.shape_env, table)
        assert live.shape_env is not None
        live.shape_env.check_equal(again)
        checked.append(len(table))

    compile_and_see(fn, *inputs, check=check, dynamic=True, fullgraph=True)
    assert checked
    assert max(checked) > 0, "no symbol was compared"


def test_a_stored_graph_has_each_stack_trace_once_and_an_older_one_is_read() -> None:
    for fn in (in_place, branches):  # the second one has graphs in its graph
        doc = compile_and_see(fn, torch.randn(4, 6), fullgraph=True).graphs[0]
        for graph in (doc, *doc.modules.values()):
            told = [t for n in graph.nodes if (t := n.meta.get("stack_trace")) is not None]
            assert told
            assert graph.stored()["stack_traces"] == list(dict.fromkeys(told))
            assert all(isinstance(text, str) and "test_graphs.py" in text for text in told)
        stored, older = doc.to_bytes(), canonical_json(doc.to_json())
        assert GraphDoc.from_bytes(stored) == GraphDoc.from_bytes(older) == doc
        assert graph_documents.whole(parse_json(stored)) == parse_json(older)
        assert graph_documents.folded(parse_json(older)) == parse_json(stored)
        assert stored != older
    assert doc.modules


@pytest.mark.parametrize("traces", [[], "text", None, [3]])
def test_a_stack_trace_that_is_missing_is_left_out(traces: Json) -> None:
    graph: Json = {"nodes": [{"meta": {"stack_trace": 5, "val": None}}], "stack_traces": traces}
    assert graph_documents.whole(graph) == {"nodes": [{"meta": {"val": None}}], "modules": {}}


@pytest.mark.parametrize("where", ["outer", "nested"])
@pytest.mark.parametrize("harm", ["an operand of no node", "a later operand", "one name twice"])
def test_a_checkpoint_whose_nodes_are_in_no_order_is_refused(where: str, harm: str) -> None:
    """The canonical text of a case ended in a KeyError."""
    seen = compile_and_see(branches, torch.randn(4), fullgraph=True).checkpoints[0]
    document: Any = parse_json(seen.to_bytes())
    graph = document["graph"] = graph_documents.whole(document["graph"])
    if where == "nested":
        graph = next(iter(graph["modules"].values()))
    nodes = graph["nodes"]
    if harm == "an operand of no node":
        nodes[-1]["args"] = [{"t": [{"n": "s48"}]}]
    elif harm == "a later operand":
        nodes.reverse()
    else:
        nodes[1]["name"] = nodes[0]["name"]
    with pytest.raises(UnsupportedError, match=r"does not come before it|two nodes of a graph"):
        CheckpointDoc.from_json(document)


def test_sources_of_parameters_are_a_table_and_an_older_checkpoint_is_read() -> None:
    base = LocalSource("self")
    named: dict[str, Source] = {
        "w": AttrSource(AttrSource(base, "layer"), "weight"),
        "b": AttrSource(AttrSource(base, "layer"), "bias"),
        "odd": LocalSource("x", dynamism=frozenset({"no data"})),  # type: ignore[arg-type]
    }
    stored = sources.encode_named(named, {})
    assert isinstance(stored, dict)
    assert [len(stored["rows"]), stored["at"]["w"], stored["at"]["b"]] == [4, 2, 3]
    plain = {name: named[name] for name in ("w", "b")}
    older = {name: sources.encode_source(source) for name, source in named.items()}
    for data in (stored, older):
        found = sources.decode_named(data)
        odd = found.pop("odd")
        assert found == plain
        assert type(odd).__name__ == "SyntheticLocalSource"


def test_unbacked_symbols_and_deferred_asserts_survive() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = x[0].item()
        torch._check(n >= 2)
        torch._check(n < 10)
        return torch.zeros(n) + torch.nonzero(x).sum()

    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        seen = compile_and_see(fn, torch.tensor([3, 0, 1]), fullgraph=True)
    doc = seen.checkpoints[0]
    bindings = [node for node in doc.graph.nodes if node.meta.get("unbacked_bindings")]
    assert len(bindings) == 2
    assert doc.shape_env["deferred"], "the program has a runtime assert"
    restored = restore(doc)
    assert encode_graph(restored.graph).to_bytes() == doc.graph.to_bytes()
    assert snapshots.encode_shape_env(restored.env) == doc.shape_env


def test_inputs_keep_layout_and_aliasing() -> None:
    base = torch.randn(40)
    strided = torch.randn(4, 6).t()
    expanded = torch.randn(1, 6).expand(4, 6)

    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return a.sum() + b.sum() + c.sum() + d.sum()

    doc = compile_and_see(fn, base[:10], base[5:25:2], strided, expanded).checkpoints[0]
    a, b, c, d = (dict(i) for i in doc.inputs)  # type: ignore[arg-type]
    assert a["storage"] == b["storage"] != c["storage"]
    assert (b["offset"], b["stride"], c["stride"], d["stride"]) == (5, [2], [1, 6], [0, 1])
    fakes: list[Any] = restore(doc).inputs
    for fake, real in zip(fakes, (base[:10], base[5:25:2], strided, expanded), strict=True):
        assert tuple(fake.shape) == tuple(real.shape)
        assert tuple(fake.stride()) == tuple(real.stride())
        assert fake.storage_offset() == real.storage_offset()
    assert fakes[0].untyped_storage()._cdata == fakes[1].untyped_storage()._cdata
    assert fakes[0].untyped_storage().nbytes() == 160


def test_no_value_of_a_tensor_is_in_a_checkpoint() -> None:
    secret = torch.full((3,), 1234567.0)
    doc = compile_and_see(lambda x: x * 2, secret).checkpoints[0]
    assert b"1234567" not in doc.to_bytes()


def test_small_constants_of_a_graph_are_kept_and_large_ones_are_not() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.0, 2.0, 3.0])

    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def inner(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            graphs.append(gm)
            return gm.forward

        return aot_autograd(fw_compiler=inner)(gm, inputs)

    torch._dynamo.reset()
    torch.compile(fn, backend=backend)(torch.randn(3))
    (constant,) = encode_graph(graphs[0]).attributes.values()
    assert isinstance(constant, dict)
    assert constant["data"] == [{"f": "0x1.0000000000000p+0"}, {"f": "0x1.0000000000000p+1"},
                                {"f": "0x1.8000000000000p+1"}]  # fmt: skip
    graphs[0].register_buffer(next(iter(encode_graph(graphs[0]).attributes)), torch.randn(100))
    (constant,) = encode_graph(graphs[0]).attributes.values()
    assert isinstance(constant, dict)
    assert "data" not in constant


def test_a_small_weight_of_a_graph_is_kept_only_where_freezing_makes_it_a_constant() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([3.0]))
            self.register_buffer("shift", torch.tensor([5.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.shift

    graph = torch.fx.symbolic_trace(Scaled())

    def kept() -> set[str]:
        attributes = encode_graph(graph).attributes
        return {n for n, value in attributes.items() if isinstance(value, dict) and "data" in value}

    assert kept() == {"shift"}
    with inductor_config.patch(freezing=True):
        assert kept() == {"scale", "shift"}
    with V.set_aot_compilation(True):
        assert kept() == set()

"""What a graph out of a store may call: by the type of the object, and nothing with a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._refs
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hostile import attack
from torchreel.errors import ForbiddenError, RefusedError, UnsupportedError
from torchreel.formats import numpy_calls, targets
from torchreel.formats.allowed import functions, members, value_kinds
from torchreel.formats.graphs.check import check_graph
from torchreel.formats.graphs.document import GraphDoc
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.dynamo import rules

TENSOR: Json = {"k": "tensor"}
INPUTS: dict[str, Json] = {"x": TENSOR, "s": {"k": "symint"}, "l": {"k": "list", "items": [TENSOR]}}
GETATTR, TEXT = "fn:builtins.getattr", "__import__('os').system('touch canary')"
ARRAY = "numpy:function:torch._numpy.{}"
ASSERT_ASYNC = "op:aten._assert_async.msg"
DISABLE_HOOKS = "fn:torch._C._autograd._saved_tensors_hooks_disable"
INTERPOLATE = "fn:torch.nn.functional.interpolate"
FUNCTIONALISED = "fn:torch._functorch.eager_transforms._maybe_wrap_functional_tensor"
CLONE, TO, RNG = "op:aten.clone.default", "op:aten.to.dtype", "hop:run_and_save_rng_state"


def node(op: str, target: str, *args: Json, name: str = "n", **kwargs: Json) -> dict[str, Json]:
    return {"name": name, "op": op, "target": target, "args": list(args), "kwargs": kwargs}


def graph(*nodes: dict[str, Json], **modules: Json) -> GraphDoc:
    """A graph of these calls, with a tensor `x`, a symbolic size `s` and a list `l` as inputs."""
    given = [node("placeholder", name, name=name) for name in INPUTS]
    output = node("output", "output", {"t": [{"n": nodes[-1]["name"]}]}, name="output")
    return GraphDoc.from_json(
        {"nodes": [*given, *nodes, output], "modules": modules, "attributes": {}}
    )


def check(*nodes: dict[str, Json], **modules: Json) -> Any:
    return check_graph(graph(*nodes, **modules), list(INPUTS.values()))


SYM_OR = "fn:torch.fx.experimental.symbolic_shapes.sym_or"
X, S, L = ({"n": name} for name in INPUTS)
NODES = "fn:torch._dynamo.compiled_autograd.ops."


def options(dtype: Json) -> Json:
    """`TensorOptions`, as compiled autograd hands them on."""
    return {"t": [None, None, {"device": "cpu"}, dtype, 0, None]}


BODY: dict[str, Json] = {
    "nodes": [
        node("placeholder", "a", name="a"),
        node("call_function", GETATTR, {"n": "a"}, "node"),
        node("output", "output", {"n": "n"}, name="output"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        node("call_method", "sum", X),
        node("call_method", "view", X, -1, S),
        node("call_method", "to", X, "cpu"),
        node("call_function", CLONE, X, memory_format={"memory_format": "torch.preserve_format"}),
        node("call_function", TO, X, 6),
        node("call_function", f"{NODES}CumsumBackward0", [X], [True], -1, 6),
        node("call_function", f"{NODES}CatBackward0", [X], [True], 2, 0, [6, 7], [[S, 3], [S, 3]]),
        node("call_function", f"{NODES}ToCopyBackward0", [X], [True], options(6)),
        node("call_function", RNG, {"fn": TO}, X, 6),
        node("call_function", "packet:aten.view", X, {"t": [2, S]}),
        node("call_method", "type", X, "torch.DoubleTensor"),
        node("call_method", "__add__", S, 1),
        node("call_method", "bit_length", S),
        node("call_method", "index", L, X),
        node("call_function", GETATTR, X, "real"),
        node("call_function", GETATTR, X, "mT"),
        node("call_function", GETATTR, X, "shape"),
        node("call_function", "fn:_operator.getitem", L, 0),
        node("call_function", "fn:torch.einsum", "ij,jk->ik", X, X),
        node("call_function", INTERPOLATE, X, mode="nearest"),
        node("call_function", "fn:torch._assert", {"n": "s"}, "Expected 'x' (of size 3)!"),
        node("call_function", DISABLE_HOOKS, "torch.func.{grad, vjp} don't support hooks"),
        node("call_function", "fn:torch.set_default_dtype", {"dtype": "float64"}),
        node("call_function", "fn:torch._C._are_functorch_transforms_active"),
        node("call_function", "fn:torch.are_deterministic_algorithms_enabled"),
        node("call_function", "fn:torch.set_float32_matmul_precision", "high"),
        node("call_function", "op:aten.div.Tensor_mode", X, X, rounding_mode="floor"),
        node("call_function", "fn:torch.Tensor", [1, 2]),
        node("call_function", "fn:torch.zeros", 2, device="cpu"),
        node("call_function", "hop:out_dtype", {"fn": "op:aten.mm.default"}, {"dtype": "int32"}, X),
        node("call_function", "numpy:function:torch._numpy.concatenate", [X, X], axis=0),
        node("call_function", "numpy:function:torch._numpy.einsum", "ij,jk->ik", X, X),
        node("call_function", "numpy:function:torch._numpy.float32", 3),
        node("call_function", "numpy:operator:_operator.add", X, S),
        node("call_function", "numpy:operator:_operator.getitem", X, {"slice": [None, S, None]}),
        node("call_function", "numpy:method:astype", X, "float32"),
        node("call_function", "numpy:method:__setitem__", X, 0, 1),
        node("call_function", "numpy:attribute", X, "T"),
    ],
)  # fmt: skip
def test_what_torch_writes_into_graphs_is_allowed(call: dict[str, Json]) -> None:
    assert check(call)["n"].types


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (node("call_method", "diff", S, TEXT), "no method that a graph may call on a symbolic"),
        (node("call_method", "diff", X, TEXT), "'diff' takes no text there"),
        (node("call_method", "view", S, 1), "no method that a graph may call on a symbolic"),
        (node("call_method", "sum", L), "no method that a graph may call on a list"),
        (node("call_method", "format", "{}", X), "is called on no value of the graph"),
        (node("call_method", "real", 1), "is called on no value of the graph"),
        (node("call_method", "apply_", X, X), "no method that a graph may call on a tensor"),
        (node("call_method", "__class__", X), "no method that a graph may call on a tensor"),
        (node("call_method", "data_ptr", X), "no method that a graph may call on a tensor"),
        (node("call_method", "new", X, cdata=1), "takes no keyword 'cdata'"),
        (node("call_method", "sum"), "is called on no value of the graph"),
        (node("call_function", GETATTR, S, "node"), "no attribute that a graph may read of a symb"),
        (node("call_function", GETATTR, S, "real"), "no attribute that a graph may read of a symb"),
        (node("call_function", GETATTR, X, "__class__"), "no attribute that a graph may read"),
        (node("call_function", GETATTR, X, "grad_fn"), "no attribute that a graph may read"),
        (node("call_function", GETATTR, X, "apply_"), "no attribute that a graph may read"),
        (node("call_function", GETATTR, X, X), "name of an attribute, as a text"),
        (node("call_function", GETATTR, L, "data"), "no attribute that a graph may read of a list"),
        (node("call_function", "fn:builtins.max", L, key={"fn": GETATTR}), "given a function"),
        (node("call_function", "fn:_operator.mod", X, "%s"), "takes no text"),
        (node("call_function", "fn:_operator.iadd", 1, X), "is called on no value"),
        (node("call_function", "fn:_operator.iadd", X), "is given 1 arguments"),
        (node("call_function", "fn:torch.relu", TEXT), "takes no text there"),
        (node("call_function", INTERPOLATE, X, mode=TEXT), "made of words"),
        (node("call_function", "op:aten.div.Tensor_mode", X, X, rounding_mode=TEXT), "of words"),
        (node("call_function", "fn:torch.Tensor", cdata=140000), "takes no keyword 'cdata'"),
        (node("call_function", "fn:torch.relu", {"fn": "fn:torch.relu"}), "given a function"),
        (node("call_function", "hop:wrap", {"fn": GETATTR}, S, "node"), "is given the"),
        (node("call_function", "hop:print", "{0.__class__}", X), "plain fields"),
        (node("call_function", "hop:print", f"a\n{TEXT}", X), "a message has no line breaks"),
        (node("call_function", "fn:torch._assert_async", X, 'a"), 0'), "a message has no line"),
        (node("call_function", ASSERT_ASYNC, X, f"a''', {TEXT}"), "a message has no line breaks"),
        (node("call_function", ASSERT_ASYNC, X, "a\\"), "a message has no line breaks"),
        (node("call_function", ASSERT_ASYNC, X, "a??/"), "a message has no line breaks"),
        (node("call_function", ASSERT_ASYNC, X, f"a\u2028{TEXT}"), "a message has no line breaks"),
        (node("call_function", ARRAY.format("pad"), X, mode={"fn": GETATTR}), "given a function"),
        (node("call_function", ARRAY.format("sum"), X, TEXT), "made of words"),
        (node("call_function", "numpy:operator:_operator.mod", X, "%s"), "takes no text"),
        (node("call_function", "numpy:operator:_operator.add", X, X, out=X), "takes no keywords"),
        (node("call_function", "numpy:operator:_operator.add", X), "is given 1 arguments"),
        (node("call_function", "numpy:method:sort", L), "used on a list"),
        (node("call_function", "numpy:method:sum"), "used on nothing"),
        (node("call_function", "numpy:method:astype", X, TEXT), "made of words"),
        (node("call_function", "numpy:attribute", S, "real"), "used on a symbolic"),
        (node("call_function", "numpy:attribute", X, "data"), "one of its attributes"),
        (node("call_function", "numpy:attribute", X, "__class__"), "one of its attributes"),
        (node("call_function", "numpy:attribute", X, X), "one of its attributes"),
        (node("call_function", CLONE, X, memory_format=-1), "'memory_format', found a number"),
        (node("call_function", CLONE, X, memory_format=S), "'memory_format', found a number"),
        (node("call_function", "packet:aten.to", X, 99), "argument 1, found a number"),
        (node("call_function", "fn:torch._refs.clone", X, memory_format=1), "found a number"),
        (node("call_function", "fn:torch.softmax", X, 0, dtype=6), "found a number"),
        (node("call_function", "fn:torch.nn.functional.softmax", X, 0, 3, 6), "found a number"),
        (node("call_function", TO, X, X), "argument 1, found a number"),
        (node("call_function", "op:aten.to.prim_dtype", X, 99), "argument 1, found a number"),
        (node("call_function", "fn:torch._refs.to", X, {"device": "cpu"}, 99), "found a number"),
        (node("call_function", f"{NODES}CumsumBackward0", [X], [True], 0, -1), "found a number"),
        (node("call_function", f"{NODES}CumsumBackward0", [X], [True], 0, S), "found a number"),
        (node("call_function", f"{NODES}CatBackward0", [X], [True], 2, 0, [6, 99], []), "a numb"),
        (node("call_function", f"{NODES}ToCopyBackward0", [X], [True], options(-1)), "a number"),
        (node("call_function", "hop:cond", True, {"fn": TO}, {"fn": TO}, {"t": [X, -1]}), "dtype"),
        (node("call_function", "hop:invoke_subgraph", {"fn": TO}, "id", X, -1), "takes a dtype"),
        (node("call_function", "hop:strict_mode", {"fn": TO}, {"t": [X, -1]}), "takes a dtype"),
        (node("call_function", RNG, {"fn": CLONE}, X, memory_format=-1), "found a number"),
        (node("call_function", RNG, {"fn": TO}, X, -1), "argument 1, found a number"),
        (node("get_attr", "forward.__globals__"), "holds no attribute"),
        (node("get_attr", "__class__"), "holds no attribute"),
        (node("call_module", "forward", X), "no portable form"),
        (node("exec", "x"), "unknown kind of node"),
    ],
)  # fmt: skip
def test_what_no_graph_does_is_refused(call: dict[str, Json], reason: str) -> None:
    with pytest.raises(ForbiddenError, match=rf"the node 'n' is refused: .*({reason})"):
        check(call)


def test_nested_graphs_are_checked_too() -> None:
    """Whatever the operator gives to its body: a size looks like a tensor there."""
    calls = [node("get_attr", "body", name="b")]
    with pytest.raises(ForbiddenError, match="'node' is no attribute"):
        check(*calls, node("call_function", "hop:invoke_subgraph", {"n": "b"}, "r", S), body=BODY)
    with pytest.raises(ForbiddenError, match="'node' is no attribute"):
        check(*calls, node("call_module", "body", S), body=BODY)
    with pytest.raises(ForbiddenError, match="a nested graph, where only data"):
        check(*calls, node("call_function", "fn:torch.relu", {"n": "b"}), body=BODY)


def test_an_operator_may_give_back_the_number_that_it_is_to_view() -> None:
    assert torch.ops.aten.to.dtype_layout(True) is True
    found = check(node("call_function", "op:aten.to.dtype_layout", True, name="k"))["k"]
    assert "bool" in found.types
    found = check(node("call_function", "op:aten.to.dtype_layout", self=S, name="k"))["k"]
    assert "int" in found.types
    found = check(node("call_function", "op:aten.relu.default", S, name="k"))["k"]
    assert "int" not in found.types


@pytest.mark.parametrize("target", [ARRAY.format("asarray"), "numpy:method:reshape"])
def test_what_numpy_code_gives_back_may_be_what_it_was_given(target: str) -> None:
    given = value_kinds.sequence("slice", [value_kinds.of("NoneType")])
    found = numpy_calls.check(target, [], {}, [value_kinds.TENSOR], [given])
    assert "slice" in found.types
    found = numpy_calls.check(target, [], {}, [value_kinds.TENSOR, value_kinds.of("str")])
    assert "str" not in found.types


def test_the_ends_of_a_region_go_together_only() -> None:
    begin = node(
        "call_function", "fn:torch.amp.autocast_mode._enter_autocast", "cpu", None, True, None,
        name="r",
    )  # fmt: skip
    end = "fn:torch.amp.autocast_mode._exit_autocast"
    check(begin, node("call_function", end, {"n": "r"}))
    for call in (
        node("call_function", GETATTR, {"n": "r"}, "data"),
        node("call_method", "sum", {"n": "r"}),
        node("call_function", "fn:_operator.getitem", {"n": "r"}, 0),
        node("call_function", "hop:wrap", {"n": "r"}),
    ):
        with pytest.raises(ForbiddenError):
            check(begin, call)


@pytest.mark.parametrize(
    "function",
    [getattr, abs, pow, max, torch._refs.tensor, torch.Tensor, torch.FloatTensor, torch.Size,
     torch._C._functorch.set_inplace_requires_grad_allowed, torch.autograd.grad,
     torch._functorch.eager_transforms._autograd_grad, torch._C._autograd._get_data_attr,
     torch.autograd.forward_ad._maybe_load_decompositions, torch.nn.Parameter,
     torch.set_default_dtype, torch._C._set_deterministic_algorithms,
     torch.nn.functional.max_pool2d],
)  # fmt: skip
def test_call_targets_follow_from_torch(function: Any) -> None:
    text = targets.encode_target(function)
    assert text.startswith("fn:")
    assert targets.decode_target(text) is function


@pytest.mark.parametrize(
    "text",
    ["fn:torch._from_blob", "fn:torch.frombuffer", "fn:torch._C._functorch.peek_interpreter_stack",
     "fn:torch._C._has_torch_function_variadic",
     "fn:torch._C._construct_storage_from_data_pointer", "fn:torch._functorch.utils.exposed_in",
     "hop:call_torchbind", "hop:inline_asm_elementwise", "hop:aoti_call_delegate",
     "fn:torch.signal.windows.windows._add_docstr", "fn:torch.signal.windows.windows.merge_dicts",
     "fn:_operator.concat", "fn:torch.cuda.memory._dump_snapshot", "fn:torch._Tensor",
     "fn:torch._C._set_dispatch_mode", "fn:torch._C._set_tensor_metadata",
     "fn:torch._C._set_worker_pids", "fn:torch._C._set_worker_signal_handlers",
     "fn:torch._C._set_tracing_state", "fn:torch.set_default_device"],
)  # fmt: skip
def test_what_reaches_further_is_no_call_target(text: str) -> None:
    with pytest.raises(UnsupportedError):
        targets.decode_target(text)


@pytest.mark.parametrize(
    ("call", "given_back"),
    [(node("call_method", "type", X), "str"),
     (node("call_function", SYM_OR, {"slice": [None, 1, None]}, False), "slice"),
     (node("call_function", "op:aten.mul_.Scalar", S, 2), "int"),
     (node("call_function", "fn:torch.split", "a.b", "."), "str"),
     (node("call_function", FUNCTIONALISED, {"slice": [None, 1, None]}, 0), "slice"),
     (node("call_function", "op:aten._unpack_dual.default", X, 0), "NoneType")],
)  # fmt: skip
def test_what_a_call_may_give_back_is_of_its_kind(call: dict[str, Json], given_back: str) -> None:
    """As a hundred thousand generated graphs once showed."""
    assert given_back in check(call)[str(call["name"])].everything


def test_every_attribute_is_data() -> None:
    """And of the kind that the rules infer."""
    for sample in (torch.ones(2, 2), torch.ones(2, 2, requires_grad=True).exp()):
        for name, kind in members.tensor_attributes().items():
            if name in ("imag", "grad", "grad_dtype"):
                continue  # of complex numbers; of leaves
            assert value_kinds.of_value(getattr(sample, name)).types <= kind.types, name


NAMES = st.sampled_from(
    ["node", "expr", "diff", "T", "shape", "__class__", "add", "__add__", "view", "split", "real",
     "index", "values", "bit_length", "format", "apply_", "sort", "new"]
)  # fmt: skip
TARGETS = st.sampled_from(
    [GETATTR, "fn:_operator.add", "fn:_operator.getitem", "fn:builtins.max", "fn:torch.relu",
     "fn:torch.split", "op:aten.add.Tensor", "packet:aten.sum", "hop:wrap", "fn:os.system"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), NAMES, st.just(TEXT),
    TARGETS.map(lambda target: {"fn": target}),
    st.sampled_from([X, S, L, *({"n": f"n{i}"} for i in range(4)), {"dtype": "float32"}]),
)  # fmt: skip
TREES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(lambda items: {"t": items}),
), max_leaves=4)  # fmt: skip
CALLS = st.one_of(
    st.tuples(st.just("call_function"), TARGETS),
    st.tuples(st.just("call_method"), NAMES),
    st.tuples(st.sampled_from(["get_attr", "call_module"]), NAMES),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(CALLS, st.lists(TREES, max_size=3)), min_size=1, max_size=5))
def test_whatever_is_admitted_keeps_to_the_types(
    calls: list[tuple[tuple[str, str], list[Json]]],
) -> None:
    nodes = [node(op, t, *args, name=f"n{i}") for i, ((op, t), args) in enumerate(calls)]
    try:
        known = check(*nodes)
    except RefusedError:
        return
    for call in nodes:
        args: Any = call["args"]
        if call["op"] == "call_method" or call["target"] == GETATTR:
            receiver = known[args[0]["n"]]
            assert not receiver.types & value_kinds.NO_DATA
            if receiver.types == {"int"}:
                assert call["op"] == "call_method"
                assert call["target"] in ("__add__", "bit_length")
        if call["target"] == GETATTR:
            assert args[1] in members.tensor_attributes()
        assert TEXT not in args


@pytest.mark.slow
def test_generated_graphs_reach_nothing() -> None:
    """A sample of `make hostile`: a third and more is admitted and runs, and nothing is touched."""
    tally = attack(300)
    assert tally.canaries == []
    assert tally.unsound == {}
    assert tally.counts["executed"] * 3 >= tally.counts["graphs"] == 300
    assert tally.counts["whole"] > 10
    assert tally.counts["written"] > 10
    assert len(tally.reasons) > 8, "the generator no longer tries what is forbidden"
    assert not tally.is_bad()


@pytest.mark.slow
def test_the_attack_finds_a_hole_where_there_is_one() -> None:
    """With rules that go by the name alone, as they once did, a graph makes SymPy run a text."""
    tally = attack(800, planted=True, only_walks=True)
    assert any("canary" in text for text in tally.canaries)
    assert tally.is_bad()
    trusted = attack(300, planted=True)
    assert any("a script has 'import canary" in text for text in trusted.canaries)


def test_a_function_in_python_may_hand_on_what_it_is_given() -> None:
    """`_single(...)` is a tuple of it: what is taken out of that is no tensor for certain."""
    made = node("call_function", "fn:torch.nn.grad._single", {"ellipsis": True}, name="made")
    item = node("call_function", "fn:_operator.getitem", {"n": "made"}, 0, name="item")
    found = check(made, item)
    assert "ellipsis" in found["made"].inside
    assert "ellipsis" in found["item"].types


def test_what_a_class_makes_is_an_object_of_which_nothing_is_known() -> None:
    """What a class of torch makes that is no tensor has methods of its own."""
    named = {*rules.in_graph_names(), *functions.SINGLE}
    classes = {name for name in named if isinstance(functions.resolve(name), type)}
    makers = {name for name in classes if not functions.is_class(name)}
    assert "torch.autograd.forward_ad._set_fwd_grad_enabled" in makers
    for name in makers:
        made = node("call_function", f"fn:{name}", True, name="made")
        assert check(made)["made"] == value_kinds.of("opaque"), name
        with pytest.raises(ForbiddenError):
            check(made, node("call_method", "clone", {"n": "made"}))

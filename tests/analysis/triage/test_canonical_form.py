"""The form of a case: what may differ between two reductions of one bug is not in it."""

from __future__ import annotations

import pytest

from torchreel.analysis.triage.canonical_form import Form, dtype_kind, form_of_case, operation
from torchreel.errors import DamagedStore
from torchreel.store.documents.jsontypes import Json, canonical_json


def tensor(dtype: str = "float32", *flags: str) -> Json:
    return {
        "k": "tensor", "dtype": dtype, "layout": "strided", "size": [4], "flags": list(flags),
    }  # fmt: skip


def given(name: str, dtype: str = "float32", *flags: str) -> Json:
    meta: Json = {"example_value": tensor(dtype, *flags)}
    return {"name": name, "op": "placeholder", "target": name, "args": [], "meta": meta}


def call(name: str, target: str, *args: Json, op: str = "call_function", **kwargs: Json) -> Json:
    return {"name": name, "op": op, "target": target, "args": list(args), "kwargs": kwargs}


def ref(name: str) -> Json:
    return {"n": name}


def form(
    *nodes: Json,
    config: Json = (),
    backend: str = "inductor",
    inputs: Json = None,
    **modules: Json,
) -> Form:
    graph: Json = {"nodes": list(nodes), "modules": modules}
    checkpoint: Json = {"graph": graph, "config": config, "inputs": inputs}
    document: Json = {"backend": backend, "harness": "compile", "checkpoint": checkpoint}
    return form_of_case(canonical_json(document))


PLAIN = form(given("x"), call("y", "fn:torch.sum", ref("x"), -1))


def test_names_numbers_and_spelling_do_not_count() -> None:
    method = call("out", "sum", ref("a"), op="call_method", dim={"t": [0, 1]}, keepdim=False)
    operator = call("sum_1", "op:aten.sum.dim_IntList", ref("arg0_1"), [0, 2])
    assert form(given("a"), method) == PLAIN
    assert form(given("arg0_1"), operator) == PLAIN


def test_the_order_of_nodes_does_not_count() -> None:
    x = given("x")
    first, second = call("a", "fn:torch.sin", ref("x")), call("b", "fn:torch.cos", ref("x"))
    last = call("c", "fn:_operator.add", ref("a"), ref("b"))
    assert form(x, first, second, last) == form(x, second, first, last)


def test_what_flows_where_counts() -> None:
    x = given("x")
    chain = form(x, call("a", "fn:torch.sin", ref("x")), call("b", "fn:torch.cos", ref("a")))
    apart = form(x, call("a", "fn:torch.sin", ref("x")), call("b", "fn:torch.cos", ref("x")))
    assert chain.calls == apart.calls
    assert chain.outline != apart.outline


@pytest.mark.parametrize(
    "other",
    [
        form(given("x", "float16"), call("y", "fn:torch.sum", ref("x"), -1)),
        form(given("x", "float32", "zero"), call("y", "fn:torch.sum", ref("x"), -1)),
        form(
            given("x"),
            call("y", "fn:torch.sum", ref("x"), -1),
            inputs=[tensor("float32", "zero")],
        ),
        form(given("x"), call("y", "fn:torch.sum", ref("x"), -1, dtype={"dtype": "bool"})),
        form(given("x"), call("y", "fn:torch.sum", ref("x"), -1, keepdim=True)),
        form(given("x"), call("y", "fn:torch.sum", ref("x"), "text")),
        form(given("x"), call("y", "fn:torch.sum", ref("x")), config=[{"module": "m", "key": "k"}]),
        form(given("x"), call("y", "fn:torch.sum", ref("x")), backend="aot_eager"),
    ],
    ids=[
        "dtype",
        "flag",
        "flag of an input",
        "dtype argument",
        "constant",
        "text",
        "config",
        "backend",
    ],
)
def test_only_the_shape_has_what_a_place_in_the_compiler_makes_needless(other: Form) -> None:
    assert other.outline == PLAIN.outline
    assert other.shape != PLAIN.shape


def test_the_body_of_an_operator_counts() -> None:
    def loop(target: str) -> Form:
        body: Json = {"nodes": [given("i"), call("j", target, ref("i"))]}
        get: Json = {"name": "b", "op": "get_attr", "target": "body"}
        return form(given("x"), get, call("w", "hop:while_loop", ref("b"), ref("x")), body=body)

    assert loop("fn:torch.sin").outline != loop("fn:torch.cos").outline
    assert loop("fn:torch.sin").calls == {"while_loop": 1, "sin": 1}


@pytest.mark.parametrize(
    ("op", "target", "name"),
    [
        ("call_function", "op:aten.scatter_.src", "scatter"),
        ("call_method", "mul_", "mul"),
        ("call_function", "fn:_operator.iadd", "add"),
        ("call_function", "fn:_operator.index", "index"),
        ("call_function", "fn:torch.nn.functional.pad", "pad"),
        ("call_function", "hop:flex_attention", "flex_attention"),
        ("call_function", "fn:_operator.and_", "and"),
        ("call_function", "fn:torch._C._linalg.linalg_matrix_exp", "matrix_exp"),
        ("call_function", "op:aten.special_ndtri.default", "ndtri"),
    ],
)
def test_an_operation_has_one_name(op: str, target: str, name: str) -> None:
    assert operation(op, target) == name


def test_dtypes_have_kinds() -> None:
    names = ["float16", "bfloat16", "torch.float64", "uint8", "int64", "complex64", "bool"]
    kinds = ["half", "half", "float", "uint", "int", "complex", "bool"]
    assert [dtype_kind(name) for name in names] == kinds


def test_names_of_a_program_s_own_and_constants_do_not_count() -> None:
    def program(name: str, value: str) -> Form:
        text = f"import torch\ndef {name}(x):\n    return torch.sin(x + {value})\n"
        return form_of_case(canonical_json({"kind": "source", "text": text}))

    assert program("fn", "1") == program("work", "2.5")
    assert program("fn", "1").unit == "statement"
    other = form_of_case(
        canonical_json({"text": "import torch\ndef f(x):\n    return torch.cos(x)"})
    )
    assert other.outline != program("fn", "1").outline


def test_a_form_is_within_the_calls_that_have_it() -> None:
    assert PLAIN.within({"sum": 2, "mul": 1})
    assert not PLAIN.within({"mul": 1})


@pytest.mark.parametrize("data", [b"", b"[]", b'{"text": "def"}', b'"no"', b"{"])
def test_what_is_no_case_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedStore):
        form_of_case(data)


@pytest.mark.parametrize(
    "graph",
    [
        None,
        {"nodes": 3, "modules": []},
        {"nodes": [1, {"op": "call_function"}, {"op": "call_method", "args": {"n": {}}}]},
        {"nodes": [{"op": "call_function", "target": "", "args": [{"n": "nowhere"}]}]},
    ],
)
def test_a_malformed_graph_has_some_form(graph: Json) -> None:
    data = canonical_json({"checkpoint": {"graph": graph, "config": 1}})
    assert form_of_case(data) == form_of_case(data)

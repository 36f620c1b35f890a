"""Cases with higher-order operators, by hand: one call of each kind of layout."""

from __future__ import annotations

from dataclasses import replace

from tests.minifier.hand_made import call, case_of, ref, tensor
from torchreel.formats.graphs import SAVE_POLICY
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.store.documents.jsontypes import Json

ROW, NUMBER = tensor(8), tensor(dtype="int64")
VALUE = tensor(4, 8)


def body(inputs: dict[str, Json], calls: list[NodeDoc], outputs: list[str] | str) -> GraphDoc:
    """A nested graph."""
    placeholders = [
        NodeDoc(name, "placeholder", name, [], {}, {"example_value": value})
        for name, value in inputs.items()
    ]
    returned: Json = (
        ref(outputs) if isinstance(outputs, str) else {"t": [ref(name) for name in outputs]}
    )
    return GraphDoc((*placeholders, *calls, NodeDoc("output", "output", "output", [returned])))


def calling(target: str, args: list[Json], bodies: dict[str, GraphDoc], results: int) -> Case:
    """A case of x and y (4 x 8), w (8), n (a number): sine, the call, a cosine of each result."""
    calls = [call("s", "sin", ref("x"))]
    calls += [NodeDoc(name, "get_attr", name) for name in bodies]
    value: Json = {"k": "tuple", "items": [VALUE] * results}
    calls.append(NodeDoc("hop", "call_function", target, args, {}, {"example_value": value}))
    for at in range(results):
        get = NodeDoc(f"g{at}", "call_function", "fn:_operator.getitem", [ref("hop"), at])
        calls += [replace(get, meta={"example_value": VALUE}), call(f"c{at}", "cos", ref(f"g{at}"))]
    outputs = [f"c{at}" for at in range(results)]
    case = case_of(calls, outputs, x=VALUE, y=VALUE, w=ROW, n=NUMBER)
    return case.with_graph(replace(case.graph, modules=bodies))


def t(*names: str) -> Json:
    """A tuple of nodes."""
    return {"t": [ref(name) for name in names]}


def cond() -> Case:
    """Two branches, two operands of which one is used, two results."""
    inputs: dict[str, Json] = {"a": VALUE, "b": VALUE}
    yes = body(inputs, [call("p", "relu", ref("a")), call("q", "exp", ref("p"))], ["p", "q"])
    no = body(inputs, [call("p", "tanh", ref("a"))], ["p", "a"])
    return calling(
        "hop:cond", [ref("n"), ref("yes"), ref("no"), t("s", "y")], {"yes": yes, "no": no}, 2
    )


def while_loop() -> Case:
    """Two carries, one further operand."""
    inputs: dict[str, Json] = {"a": VALUE, "b": VALUE, "c": ROW}
    more = body(inputs, [call("p", "any", ref("a"), value=tensor(dtype="bool"))], "p")
    step = body(inputs, [call("p", "relu", ref("a")), call("q", "add", ref("b"), ref("c"))],
                ["p", "q"])  # fmt: skip
    args = [ref("more"), ref("step"), t("s", "y"), t("w")]
    return calling("hop:while_loop", args, {"more": more, "step": step}, 2)


def scan() -> Case:
    """One carry, slices of one input, one further operand, one stacked result."""
    inputs: dict[str, Json] = {"a": VALUE, "b": ROW, "c": ROW}
    step = body(inputs, [call("p", "add", ref("a"), ref("b")), call("q", "exp", ref("b"))],
                ["p", "q"])  # fmt: skip
    args: list[Json] = [ref("step"), [ref("s")], [ref("y")], [ref("w")]]
    return calling("hop:scan", args, {"step": step}, 2)


def associative_scan() -> Case:
    """Two inputs at two places each."""
    inputs: dict[str, Json] = {"a": ROW, "b": ROW, "c": ROW, "d": ROW}
    step = body(inputs, [call("p", "add", ref("a"), ref("c"), value=ROW),
                         call("q", "exp", ref("c"), value=ROW)], ["p", "q"])  # fmt: skip
    args: list[Json] = [ref("step"), [ref("s"), ref("y")], []]
    return calling("hop:associative_scan", args, {"step": step}, 2)


def region() -> Case:
    """One body that is called twice."""
    inputs: dict[str, Json] = {"a": VALUE, "b": VALUE}
    inner = body(inputs, [call("p", "relu", ref("a")), call("q", "exp", ref("p"))], ["p", "q"])
    args: list[Json] = [ref("inner"), "inner", ref("s"), ref("y")]
    case = calling("hop:invoke_subgraph", args, {"inner": inner}, 2)
    again = replace(case.graph.by_name["hop"], name="hop2",
                    args=[ref("inner"), "inner", ref("g0"), ref("y")])  # fmt: skip
    get = replace(case.graph.by_name["g1"], name="g2", args=[ref("hop2"), 1])
    output = NodeDoc("output", "output", "output", [t("c0", "c1", "g2")])
    return case.with_graph(replace(case.graph, nodes=(*case.graph.nodes[:-1], again, get, output)))


def cond_in_scan() -> Case:
    """A body with a body."""
    case, inner = scan(), cond()
    step = case.graph.modules["step"]
    nodes = list(step.nodes)
    more = [n for n in inner.graph.nodes if n.op == "get_attr"]
    made = replace(inner.graph.by_name["hop"], args=[
        ref("c"), ref("yes"), ref("no"), t("p", "a"),
    ])  # fmt: skip
    get = replace(inner.graph.by_name["g0"], name="g0")
    output = NodeDoc("output", "output", "output", [t("g0", "q")])
    step = GraphDoc((*nodes[:-1], *more, made, get, output), inner.graph.modules)
    return case.with_graph(replace(case.graph, modules={"step": step}))


def checkpointed() -> Case:
    """A region of activation checkpointing that saves one of its two calls."""
    inputs: dict[str, Json] = {"a": VALUE, "b": VALUE}
    inner = body(inputs, [call("p", "relu", ref("a")), call("q", "exp", ref("p"))], ["p", "q"])
    inner = replace(inner, extra={SAVE_POLICY: {"aten.exp.default": ["MUST_SAVE"]}})
    args = [ref("inner"), ref("s"), ref("y")]
    return calling("hop:tag_activation_checkpoint", args, {"inner": inner}, 2)


NESTED = {
    made.__name__: made()
    for made in (
        cond, while_loop, scan, associative_scan, region, cond_in_scan, checkpointed,
    )
}  # fmt: skip

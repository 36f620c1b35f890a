"""Generated cases: small, and between them of every kind that a pass of the list makes an edit of.

Whoever adds a pass for what no case has adds it here: `passes/test_passes.py` wants an edit of each
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.minifier.hand_made import call, case_of, ref, tensor
from tests.minifier.nested import NESTED, VALUE
from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import BACKENDS, HARNESSES, Case
from torchreel.store.documents.jsontypes import Json

SYMBOLS: dict[str, Json] = {
    "settings": {},
    "symbols": {f"s{n}": ["integer", "positive"] for n in range(3)},
    "state": {"backed_var_to_val": [["s0", 4], ["s1", 4], ["s2", 8]]},
}
CONFIG: tuple[Json, ...] = (
    {"module": "inductor", "key": "max_fusion_size", "value": 1, "portable": True},
    {"module": "inductor", "key": "fallback_random", "value": True, "portable": True},
)

tensors = st.builds(
    lambda size, dtype, grad, changes: tensor(*size, dtype=dtype, requires_grad=grad, **changes),
    st.lists(st.integers(0, 4), max_size=3) | st.just([4, 8]),
    st.sampled_from(["float32", "int64", "float16", "bool"]),
    st.booleans(),
    st.sampled_from([{}, {"contents": "positive"}, {"storage": 0}, {"parameter": True}]),
)
symbolic = st.sampled_from(
    [
        tensor("s0", 8),
        tensor("s0", "s1"),
        tensor("Mul(2, s1)", 8),
        {"k": "symint", "expr": "s2", "hint": 8},
    ]
)
inputs = st.just(VALUE) | st.just(tensor(4, 8, stride=[1, 4])) | tensors

# Makes the calls of one statement: the first name is the result's, the others are operands.
Statement = Callable[[str, str, str], list[NodeDoc]]


def _region(name: str, x: str, y: str) -> list[NodeDoc]:
    enter = NodeDoc(f"{name}_in", "call_function", "fn:torch.amp.autocast_mode._enter_autocast",
                    ["cpu", {"dtype": "bfloat16"}, True, None])  # fmt: skip
    leave = NodeDoc(f"{name}_out", "call_function", "fn:torch.amp.autocast_mode._exit_autocast",
                    [ref(enter.name)])  # fmt: skip
    return [enter, call(name, "sin", ref(x)), leave]


def _number(name: str, x: str, y: str) -> list[NodeDoc]:
    size: Json = {"k": "symint", "expr": "s0", "hint": 4}
    return [
        NodeDoc(f"{name}_n", "call_method", "size", [ref(x), 0], {}, {"example_value": size}),
        call(name, "add", ref(x), ref(f"{name}_n")),
    ]


STATEMENTS: dict[str, Statement] = {
    **{
        function: lambda name, x, y, function=function: [call(name, function, ref(x))]
        for function in ("sin", "cos", "relu", "clone", "relu_")
    },
    "two operands": lambda name, x, y: [call(name, "add", ref(x), ref(y))],
    "keywords": lambda name, x, y: [call(name, "add", ref(x), ref(y), alpha=3, out=None)],
    "a reduction": lambda name, x, y: [
        call(name, "sum", ref(x), 1, True, dtype={"dtype": "float64"}, value=tensor(4, 1))
    ],
    "a list": lambda name, x, y: [call(name, "cat", [ref(x), ref(y), ref(x)], 1)],
    "literals": lambda name, x, y: [call(name, "clamp", ref(x), -7, {"f": (7.5).hex()})],
    "a view": lambda name, x, y: [call(name, "reshape", ref(x), [32], value=tensor(32))],
    "a cast": lambda name, x, y: [
        NodeDoc(name, "call_method", "to", [ref(x), {"dtype": "float16"}], {},
                {"example_value": tensor(4, 8, dtype="float16")})
    ],
    "an operator": lambda name, x, y: [
        NodeDoc(name, "call_function", "op:aten.clone.default", [ref(x)], {},
                {"example_value": VALUE})
    ],
    "a method": lambda name, x, y: [
        NodeDoc(name, "call_method", "clone", [ref(x)], {}, {"example_value": VALUE})
    ],
    "a constant": lambda name, x, y: [
        NodeDoc(f"k_{name}", "get_attr", f"k_{name}"), call(name, "add", ref(x), ref(f"k_{name}"))
    ],
    "a number": _number,
    "a region": _region,
}  # fmt: skip


@st.composite
def flat(draw: st.DrawFn) -> Case:
    """A few statements over one to three inputs, with symbols in some of them."""
    dynamic = draw(st.booleans())
    given = {f"x{n}": draw(inputs) for n in range(draw(st.integers(1, 2)))}
    given |= {"d": draw(symbolic)} if dynamic else {}
    names, calls = list(given), list[NodeDoc]()
    for number in range(draw(st.integers(0, 5))):
        statement = STATEMENTS[draw(st.sampled_from(sorted(STATEMENTS)))]
        calls += statement(f"c{number}", draw(st.sampled_from(names)), draw(st.sampled_from(names)))
        names.append(f"c{number}")
    case = case_of(calls, draw(st.lists(st.sampled_from(names), max_size=3)), **given)
    attributes: dict[str, Json] = {n.target: VALUE for n in calls if n.op == "get_attr"}
    doc = replace(case.checkpoint, shape_env=SYMBOLS if dynamic else case.checkpoint.shape_env)
    case = replace(case, checkpoint=doc)
    return case.with_graph(replace(case.graph, attributes=attributes))


@st.composite
def nested(draw: st.DrawFn) -> Case:
    """A call of a higher-order operator, some of whose results are returned."""
    name = draw(st.sampled_from(sorted(NESTED)))
    case = NESTED[name]
    if name == "while_loop" and draw(st.booleans()):
        case = _counted(case)
    items = [item["n"] for item in case.graph.output.args[0]["t"]]  # type: ignore[index,call-overload,union-attr]
    return _returning(case, draw(st.lists(st.sampled_from(items), max_size=3, unique=True)))


def _counted(case: Case) -> Case:
    """The loop, with a number in its condition."""
    more = case.graph.modules["more"]
    counts = call("p", "lt", ref("a"), 5, value=tensor(dtype="bool"))
    nodes = tuple(counts if node.is_call else node for node in more.nodes)
    modules = {**case.graph.modules, "more": replace(more, nodes=nodes)}
    return case.with_graph(replace(case.graph, modules=modules))


def _returning(case: Case, names: Sequence[str]) -> Case:
    output = replace(case.graph.output, args=[{"t": [ref(name) for name in names]}])
    return case.with_graph(replace(case.graph, nodes=(*case.graph.nodes[:-1], output)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any of these, run in any way, with any settings."""
    case = draw(flat() | nested())
    doc = replace(
        case.checkpoint,
        config=tuple(draw(st.lists(st.sampled_from(CONFIG), max_size=2, unique_by=id))),
        ambient=draw(st.sampled_from([{}, {"grad_enabled": False}, {"default_dtype": None}])),
        extra={**case.checkpoint.extra, **draw(st.sampled_from([{}, {"options": [CONFIG[0]]}]))},
    )
    harness, backend = draw(st.sampled_from(HARNESSES)), draw(st.sampled_from(BACKENDS))
    return replace(case, checkpoint=doc, harness=harness, backend=backend)

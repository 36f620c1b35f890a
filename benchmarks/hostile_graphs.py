"""Graphs that attack the rules: of everything that the rules admit, and of what they must not.

Lives here: `Attacker`, which makes the n-th graph as data.  Not here: running one (`hostile`).

A graph is a chain of up to five calls, each on what the call before gave.  Most calls have
arguments as the schema of the operator wants them, so that they are admitted and run; some are
changed: a text that is a program in place of an argument, a method or an attribute that no tensor
has, a symbolic number in place of a tensor.  Some chains only walk from attribute to attribute and
end in a call with a text.
"""

from __future__ import annotations

import contextlib
import random
from functools import cache
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import numpy_calls, targets
from torchreel.formats.allowed import functions, members
from torchreel.torch_compat import distributed
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.operators import dispatcher

MARK = "canary_7c1e"
"""In every text that is a program, and the name of what it would leave behind."""

TEXTS = [
    f"__import__('os').system('touch {MARK}')",
    f"open('{MARK}', 'w').write('x')",
    f"exec('import {MARK}')",
    f"__import__('os').putenv('{MARK}', '1')",
    f"__import__('socket').socket().connect(('127.0.0.1', 9)) or '{MARK}'",
    f"{{0.__class__.__init__.__globals__[{MARK}]}}",
    f"torch.save(1, '{MARK}')",
    f"{MARK}",
    f"/tmp/{MARK}.so",
    f"%({MARK})s",
    f"x'''), open('{MARK}', 'w'), (r'''",
    f'x"), 0)); system("touch {MARK}"); throw ("',
]
PIECES = [
    "'", "''", "'''", '"', "\\", "\n", "\r", "\v", "\f", "\x00", "\x85", "\u2028", "??/", "//",
    "*/", "/*", "#", "{", "}", ")", "));", "%s", "$", "${x}", "R\"(", ")\"", "<", "`", " ",
    "KERNEL_NAME",
]  # fmt: skip
"""What may end a string or a comment of Python or of C++, or begin one, and what templates hold."""
WORDS = ["mean", "sum", "ij,jk->ik", "cpu", "floor", "tanh", "reflect", "ortho", "fro", "trunc"]
ATTRIBUTES = [
    "node", "expr", "node", "expr", "shape_env", "grad_fn", "__class__", "__init__", "__globals__",
    "__dict__", "__reduce__", "fake_mode", "_backward_hooks", "__builtins__", "name",
]  # fmt: skip
PATHS = [["node", "expr"], ["node", "expr"], ["node", "shape_env", "fake_mode"], ["grad_fn"]]
METHODS = [
    "diff", "subs", "diff", "evalf", "doit", "replace", "format", "register_hook", "apply_", "map_",
    "__reduce_ex__", "__class__", "data_ptr", "numpy", "split", "__mod__", "call", "lambdify",
    "type", "new", "backward", "as_subclass", "module_load", "_sympy_",
]  # fmt: skip
FUNCTIONS = [
    "fn:os.system", "fn:builtins.eval", "fn:builtins.exec", "fn:builtins.open", "fn:torch.load",
    "fn:_operator.methodcaller", "fn:_operator.attrgetter", "fn:_operator.call", "fn:torch.compile",
    "fn:torch._from_blob", "fn:torch.frombuffer", "fn:torch.from_file", "op:aten.from_file.default",
    "hop:call_torchbind", "hop:flat_apply", "hop:inline_asm_elementwise", "hop:trace_wrapped",
    "fn:torch._C._jit_script_compile", "fn:torch.ops.load_library", "fn:torch.hub.load",
    "fn:torch.cuda.memory._dump_snapshot", "fn:torch.functional.torch.load",
    "numpy:function:torch._numpy.load", "numpy:function:os.system", "numpy:method:__class__",
    "numpy:operator:builtins.getattr", "numpy:operator:_operator.methodcaller", "numpy:method:data",
]  # fmt: skip
CONSTANTS: list[Any] = [
    0, 1, 2, -1, True, None, {"f": "0x1.0p-1"}, {"dtype": "float32"}, {"device": "cpu"},
    [1, 2], {"t": [2, 2]}, {"slice": [0, 1, None]}, {"c": ["0x1.0p0", "0x0.0p0"]},
    {"ellipsis": True}, {"dtensor": ["Shard", 0]}, {"dtensor": ["Partial", "sum"]},
]  # fmt: skip
_NAMESPACES = (
    "aten", "aten", "aten", "prims", "inductor", "quantized_decomposed", "_dtensor", "device_mesh",
    "_c10d_functional",
)  # fmt: skip
PLACEMENTS: list[Any] = [
    ["Replicate"], ["Shard", 0], ["Shard", -7], ["Partial", "sum"], ["Partial", MARK],
    ["_StridedShard", 0, 2], ["_MaskPartial", None, {"size": [2]}, 0], ["TensorMeta", 1, 1, 1],
    ["MaskBuffer"], ["Shard", [MARK]],
    ["Partial", f"1)}})\ropen('{MARK}', 'w')\rdef g(y=1):\n0#"],
    ["_MaskPartial", f"1,offset_dim=1))\ropen('{MARK}', 'w')\rdef g(y=1):\n0#", None, 0],
]  # fmt: skip

ASSERTIONS = [
    "op:aten._assert_async.msg",
    "op:aten._functional_assert_async.msg",
    "op:aten._assert_scalar.default",
    "op:aten._functional_assert_scalar.default",
]
"""Their message stands in what Inductor writes."""
KERNEL_CALLS = ["hop:triton_kernel_wrapper_mutation", "hop:triton_kernel_wrapper_functional"]
KERNELS_TABLE: list[Any] = [
    {
        "number": 0, "constants_number": 0, "name": "kernel", "names": {}, "constants": {},
        "configurations": [], "key": [],
        "source": f"def kernel(x):\n    pass\n\nimport {MARK}\n{MARK}.run()",
    },
]  # fmt: skip
"""The kernels of the store: their source is a program, which is written for no stranger."""

Node = dict[str, Any]


@cache
def operators() -> list[str]:
    """Every overload of an operator that the rules admit."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        text = f"op:{namespace}.{packet}.{overload or 'default'}"
        if namespace in _NAMESPACES:
            with contextlib.suppress(UnsupportedError):
                targets.decode_target(text)
                found.append(text)
    return sorted(found)


@cache
def named_functions() -> list[str]:
    """Every function that the rules admit, by qualified name, Python's own among them."""
    names = {
        *rules.in_graph_names(),
        *dispatcher.reference_names(),
        *(f"torch.{name}" for name in dir(dispatcher.variable_functions())),
        *(f"torch.{name}" for name in torch.functional.__all__),
        *(f"_operator.{name}" for name in functions._operators()),
        *(f"builtins.{name}" for name in functions._BUILTINS),
        *dispatcher.tensor_classes(),
        *functions.SINGLE,
    }
    return sorted(name for name in names if functions.resolve(name) is not None)


@cache
def methods() -> list[str]:
    """Every method that the rules admit on a value of some type."""
    return sorted(members.tensor_methods() | members._OF_NUMBERS | members._OF_SEQUENCES)


@cache
def simple_operators() -> list[str]:
    """Those that take one tensor, and nothing else that has to be given: such calls mostly work."""
    found = ((text, targets.decode_target(text)) for text in operators())
    return [text for text, operator in found if _is_simple(operator._schema)]  # type: ignore[attr-defined]


@cache
def wordy_operators() -> list[str]:
    """Those that take a text: an assertion its message, say."""
    found = ((text, targets.decode_target(text)) for text in operators())
    return [text for text, operator in found if _takes_text(operator._schema)]  # type: ignore[attr-defined]


def _takes_text(schema: Any) -> bool:
    return any("str" in str(argument.type) for argument in schema.arguments)


@cache
def simple_methods() -> list[str]:
    """The methods of the same kind."""
    return [name for name in methods() if any(map(_is_simple, _schemas(f"aten::{name}")))]


def _is_simple(schema: Any) -> bool:
    needed = [found for found in schema.arguments if not found.has_default_value()]
    return [str(found.type) for found in needed] == ["Tensor"]


@cache
def _schemas(name: str) -> list[Any]:
    return list(torch._C._jit_get_schemas_for_operator(name))


@cache
def numpy_names() -> dict[str, list[str]]:
    """What the rules admit in NumPy code, by the kind of call."""
    return {
        "function": sorted(numpy_calls.array_functions()),
        "operator": sorted(f"_operator.{name}" for name in functions._operators()),
        "method": sorted(numpy_calls.methods()),
    }


class Attacker:
    """Makes one graph: `inputs` are placeholders, by the type of their values."""

    def __init__(
        self,
        number: int,
        inputs: dict[str, str],
        *,
        only_walks: bool = False,
        only_texts: bool = False,
    ) -> None:
        self.random = random.Random(number)
        self.inputs = inputs
        self.values = list(inputs)
        self.nodes: list[Node] = []
        self.modules: dict[str, Any] = {}
        self.only_walks, self.only_texts = only_walks, only_texts
        # Most graphs are harmless in form, for the others are refused at their first bad step.
        self.malice = self.random.choice([0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.7])

    def graph(self) -> tuple[list[Node], dict[str, Any]]:
        """The calls, and the nested graphs."""
        if self.only_walks or (not self.only_texts and self.random.random() < 0.07):
            self._walk()
        else:
            for _ in range(self.random.randint(1, 5)):
                self._step()
        if self.random.random() < 0.1:
            self._hide()
        return self.nodes, self.modules

    def _walk(self) -> None:
        """Attributes of attributes, from a symbolic number or a tensor, then a call with a text."""
        symbols = [name for name, kind in self.inputs.items() if kind == "int"]
        starts = [name for name, kind in self.inputs.items() if kind != "mesh"]
        at = self.random.choice([*starts, *symbols * len(starts)])
        known = self.random.choice(PATHS)[: self.random.randint(0, 3)]
        others = [self.random.choice(ATTRIBUTES) for _ in range(self.random.randint(0, 2))]
        for name in [*known, *others][:4] or ["T"]:
            at = self._add("call_function", "fn:builtins.getattr", [{"n": at}, name])
        self._add(
            "call_method", self.random.choice(METHODS), [{"n": at}, self.random.choice(TEXTS)]
        )

    def _step(self) -> None:
        kind = self.random.choices(
            [
                "operator",
                "function",
                "method",
                "attribute",
                "python",
                "numpy",
                "nested",
                "distributed",
            ],
            [30, 20, 20, 8, 10, 10, 2, 6],
        )[0]
        getattr(self, f"_{kind}")()
        if self.random.random() < self.malice:
            self._spoil(self.nodes[-1])

    def _add(self, op: str, target: str, args: list[Any], kwargs: Any = None) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            {
                "name": name,
                "op": op,
                "target": target,
                "args": args,
                "kwargs": kwargs or {},
                "meta": {},
            }
        )
        self.values.append(name)
        return name

    def _operator(self) -> None:
        simple = self.random.random() < 0.6
        wordy = self.only_texts and self.random.random() < 0.6
        known = wordy_operators() if wordy else simple_operators() if simple else operators()
        if wordy and self.random.random() < 0.7:
            known = ASSERTIONS
        target = self.random.choice(known)
        operator = targets.decode_target(target)
        args, kwargs = self._arguments(operator._schema)  # type: ignore[attr-defined]
        self._add("call_function", target, args, kwargs)

    def _function(self) -> None:
        name = self.random.choice(named_functions())
        found = _schemas(f"aten::{name.rpartition('.')[2]}")
        if found:
            args, kwargs = self._arguments(self.random.choice(found))
        else:
            args, kwargs = self._some(self.random.randint(0, 3)), {}
        self._add("call_function", f"fn:{name}", args, kwargs)

    def _method(self) -> None:
        simple = self.random.random() < 0.6
        name = self.random.choice(simple_methods() if simple else methods())
        found = [one for one in _schemas(f"aten::{name}") if not simple or _is_simple(one)]
        if found:
            args, kwargs = self._arguments(self.random.choice(found))
        else:
            args, kwargs = [self._node(), *self._some(self.random.randint(0, 2))], {}
        self._add("call_method", name, args or [self._node()], kwargs)

    def _attribute(self) -> None:
        name = self.random.choice(sorted(members.tensor_attributes()))
        self._add("call_function", "fn:builtins.getattr", [self._tensor(), name])

    def _python(self) -> None:
        name = self.random.choice(sorted(functions._operators()))
        self._add("call_function", f"fn:_operator.{name}", [self._node(), *self._some(1)])

    def _numpy(self) -> None:
        """What Dynamo writes for NumPy code: around a function, an operator, a method; `T`."""
        kind = self.random.choice(["function", "function", "operator", "method", "attribute"])
        args = [self._tensor() if kind != "operator" else self._node()]
        if kind == "attribute":
            args.append(self.random.choice([*sorted(numpy_calls.ATTRIBUTES), "data", "flags"]))
            self._add("call_function", "numpy:attribute", args)
            return
        name = self.random.choice(numpy_names()[kind])
        args += self._some(self.random.randint(0, 2))
        if self.random.random() < 0.1:
            args.append(self.random.choice([*WORDS, "float32", "O", "C", "constant"]))
        self._add("call_function", f"numpy:{kind}:{name}", args)

    def _distributed(self) -> None:
        """A call on a distributed tensor, one that makes such a tensor, or a part of a mesh."""
        meshes = [name for name, kind in self.inputs.items() if kind == "mesh"]
        if not meshes:
            self._method()
            return
        mesh = {"n": self.random.choice(meshes)}
        placements: list[Any] = [{"dtensor": self.random.choice(PLACEMENTS)} for _ in range(2)]
        if self.random.random() < 0.2:
            placements = [{"d": [[1, placement]]} for placement in placements]
        match self.random.randrange(4):
            case 0:
                args = [self._tensor(), mesh, placements, *self._some(self.random.randrange(2))]
                self._add("call_function", f"fn:{distributed.FROM_LOCAL}", args)
            case 1:
                given = {"placements": placements} if self.random.random() < 0.7 else {}
                name = self.random.choice(distributed.METHODS)
                self._add("call_method", name, [self._tensor()], given)
            case 2:
                names = self.random.choice(["a", "b", {"t": ["a", "b"]}, MARK, 0, mesh])
                self._add("call_method", "__getitem__", [mesh, names])
            case _:
                self._add("call_method", self.random.choice(METHODS), [mesh, self._text()])

    def _nested(self) -> None:
        """A higher-order operator with a body, which attacks as well."""
        body = f"body_{len(self.modules)}"
        made = self._body(Attacker(self.random.randrange(10**9), _OF_BODIES))
        if any(node["target"].startswith("hop:") for node in made["nodes"]):
            self._add("call_function", "hop:print", [self._text(), self._node()])
            return
        self.modules[body] = made
        graph = self._add("get_attr", body, [])
        operands = [{"n": graph}, "subgraph_0", self._tensor(), self._node()]
        self._add("call_function", "hop:invoke_subgraph", operands)

    def _hide(self) -> None:
        """A body that no node names, with bodies of its own; most call a kernel of the store."""
        inner = Attacker(self.random.randrange(10**9), _OF_BODIES)
        if self.random.random() < 0.7:
            inner._add(
                "call_function",
                self.random.choice(KERNEL_CALLS),
                [],
                {"kernel_idx": 0, "constant_args_idx": 0, "grid": [{"t": [1, 1, 1]}]},
            )
        self.modules[f"hidden_{len(self.modules)}"] = self._body(inner)

    def _body(self, inner: Attacker) -> dict[str, Any]:
        nodes, modules = inner.graph()
        given = [_placeholder(name) for name in inner.inputs]
        returned = {"t": [{"n": inner.values[-1]}]}
        output = {**_placeholder("output"), "op": "output", "args": [returned]}
        return {
            "nodes": [*given, *nodes, output], "modules": modules, "attributes": {}, "extra": {},
        }  # fmt: skip

    def _spoil(self, node: Node) -> None:
        """Change a call into one that reaches for something else."""
        choice = self.random.randrange(6)
        if choice == 0 and node["args"]:
            node["args"][self.random.randrange(len(node["args"]))] = self.random.choice(TEXTS)
        elif choice == 1 and node["op"] == "call_method":
            node["target"] = self.random.choice(METHODS)
        elif choice == 2 and node["op"] == "call_function":
            node["target"] = self.random.choice(FUNCTIONS)
        elif choice == 3:
            node["kwargs"][self.random.choice(["out", "device", "cdata", "key", "mode"])] = (
                self.random.choice([*TEXTS, 1])
            )
        elif choice == 4 and node["args"]:
            node["args"].append({"fn": self.random.choice(FUNCTIONS)})
        elif node["args"]:
            node["args"][0] = {"n": self.random.choice(list(self.inputs))}

    def _node(self) -> Any:
        """A value: most often that of the call before."""
        return {"n": self.values[-1] if self.random.random() < 0.6 else self._any()}

    def _any(self) -> str:
        return self.random.choice(self.values)

    def _tensor(self) -> Any:
        if len(self.values) > len(self.inputs) and self.random.random() < 0.6:
            return {"n": self.values[-1]}
        return {"n": self.random.choice([n for n, kind in self.inputs.items() if kind == "tensor"])}

    def _some(self, count: int) -> list[Any]:
        return [
            self._node() if self.random.random() < 0.6 else self.random.choice(CONSTANTS)
            for _ in range(count)
        ]

    def _text(self) -> str:
        if self.only_texts and self.random.random() < 0.6:
            pieces = self.random.choices(PIECES, k=self.random.randint(1, 2))
            return "".join(f"{piece}{MARK}" for piece in pieces)
        return self.random.choice(TEXTS if self.random.random() < 0.1 else WORDS)

    def _arguments(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the types that a schema names."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in schema.arguments:
            optional = argument.has_default_value()
            if optional and self.random.random() < 0.7:
                if not argument.kwarg_only:
                    break
                continue
            value = self._of_type(str(argument.type))
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _of_type(self, text: str) -> Any:
        if text.startswith("Optional["):
            return None if self.random.random() < 0.5 else self._of_type(text[9:-1])
        if text.startswith("List["):
            return [self._of_type(text[5:-1]) for _ in range(self.random.randint(1, 2))]
        if text == "Tensor":
            return self._tensor()
        if text in ("int", "SymInt", "number"):
            symbols = [name for name, kind in self.inputs.items() if kind == "int"]
            return self.random.choice([0, 1, 2, -1, {"n": self.random.choice(symbols)}])
        if text == "str":
            return self._text()
        plain = {"float": {"f": "0x1.0p-1"}, "bool": True, "Device": {"device": "cpu"}}
        return plain.get(text, self.random.choice(CONSTANTS))


_OF_BODIES = {"a": "tensor", "b": "int"}


def _placeholder(name: str) -> Node:
    return {"name": name, "op": "placeholder", "target": name, "args": [], "kwargs": {}, "meta": {}}

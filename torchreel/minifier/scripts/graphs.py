"""A graph as the source that builds it node by node, and the call of the compiler on it.

The way around Dynamo: what Dynamo would trace out of a function is not always the recorded graph.
Every node keeps its operation, its target and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import identifier, literal
from torchreel.formats import names
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.scripts import operators, settings
from torchreel.minifier.scripts.functions import INDENT, check_arguments, derived_sizes
from torchreel.minifier.scripts.inputs import InputLines
from torchreel.minifier.scripts.names import public_target, variables
from torchreel.minifier.scripts.policies import Policies
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


def builder(
    name: str,
    case: Case,
    policies: Policies,
    graph: GraphDoc | None = None,
    *,
    inner: bool = False,
) -> list[str]:
    """Return `def name():`, which gives a GraphModule, after those of the graphs nested in it.

    Inductor reads the inputs of an `inner` graph off its placeholders.
    """
    graph = graph or case.graph
    nested = {path: f"{name}_{number}" for number, path in enumerate(graph.modules)}
    lines: list[str] = []
    for path, function in nested.items():
        lines += [*builder(function, case, policies, graph.modules[path], inner=True), "", ""]
    body = ["root = torch.nn.Module()"]
    body += [f"root.{_attribute(path)} = {function}()" for path, function in nested.items()]
    body += _constants(case, graph)
    body += ["g = torch.fx.Graph()", *_nodes(case, graph)]
    body += _fake_inputs(case, graph) if inner and case.checkpoint.entry == "aot" else []
    if policy := policies.name(graph.extra):
        body += ["gm = torch.fx.GraphModule(root, g)"]
        body += [f'gm.meta["_checkpoint_context_fn"] = {policy}', "return gm"]
    else:
        body += ["return torch.fx.GraphModule(root, g)"]
    return [*lines, f"def {name}():", *(INDENT + line for line in body)]


def _attribute(path: str) -> str:
    return identifier(path.replace(".", "_"))


def _constants(case: Case, graph: GraphDoc) -> Iterator[str]:
    for path, description in graph.attributes.items():
        name = _attribute(path)
        yield "torch.manual_seed(0)"
        yield from InputLines(case.checkpoint, [description]).lines([name])
        yield f"root.register_buffer({literal(name)}, {name})"


def _nodes(case: Case, graph: GraphDoc) -> Iterator[str]:
    names = variables(graph)

    def argument(tree: Json) -> str:
        return spelling.argument(tree, names.__getitem__)

    for node in graph.nodes:
        check_arguments(node)
        if node.op == "output":
            yield f"g.output({argument(as_list(node.args)[0])})"
        else:
            parts = [
                _what(node, names[node.name], operators.sources(case)),
                *_arguments(node, argument),
            ]
            yield f"{names[node.name]} = g.{node.op}({', '.join(parts)})"


def _fake_inputs(case: Case, graph: GraphDoc) -> Iterator[str]:
    names = variables(graph)
    for node in graph.placeholders:
        known = as_object(node.value)
        if known.get("k") == "tensor":
            layout = [{"t": as_list(known.get(key))} for key in ("size", "stride")]
            parts = [spelling.constant(item) for item in layout]
            dtype = spelling.constant({"dtype": known.get("dtype")})
            made = f"torch.empty_strided({', '.join(parts)}, dtype={dtype})"
            yield f'{names[node.name]}.meta["val"] = mode.from_tensor({made})'


def _what(node: NodeDoc, variable: str, imports: tuple[str, ...]) -> str:
    """Return the first argument of the method that makes a node: its name or its target."""
    match node.op:
        case "placeholder":
            return literal(variable)
        case "get_attr" | "call_module":
            return literal(_attribute(node.target))
        case "call_method":
            return literal(names.check_path(node.target))
        case "call_function":
            return spelling.function(public_target(node.target, imports))
    raise UnsupportedError(f"unknown kind of node {node.op!r:.40}")


def _arguments(node: NodeDoc, argument: Callable[[Json], str]) -> list[str]:
    if not node.is_call:
        return []
    pairs: list[Json] = [[key, value] for key, value in as_object(node.kwargs).items()]
    positional = argument({"t": as_list(node.args)})
    return [positional, argument({"d": pairs})] if pairs else [positional]


def imports(case: Case) -> list[str]:
    """Return the parts of the compiler that a repro of this form calls."""
    common = [
        "from torch._guards import TracingContext, tracing",
        "from torch._subclasses import FakeTensorMode",
    ]
    symbolic = "ShapeEnv"
    if settings.dynamic_dims(case):
        common.insert(0, "from torch._dynamo.source import ConstantSource")
        symbolic = "DimDynamic, ShapeEnv, StatelessSymbolicContext"
    common.append(f"from torch.fx.experimental.symbolic_shapes import {symbolic}")
    if case.checkpoint.entry == "aot":
        common += [
            "from torch._inductor.compile_fx import compile_fx_inner",
            "from torch._inductor.virtualized import V",
            "from torch.fx.passes.fake_tensor_prop import FakeTensorProp",
        ]
    return sorted(common)


def compilation(case: Case) -> list[str]:
    """Return the statements that give the graph and fake inputs to the compiler."""
    lines = ["mode = FakeTensorMode(shape_env=ShapeEnv())", *_fakes(case)]
    if case.checkpoint.entry == "aot":
        return [*lines, *_inductor(case)]
    entries = as_list(case.checkpoint.extra.get("options"))
    if entries:
        raise UnsupportedError("a graph is not given to a backend together with options")
    backend = settings.backend(case)
    found = backend if ":" in case.backend else f"torch._dynamo.lookup_backend({backend})"
    call = f"compiled = {found}(graph(), fakes)"
    backward = "torch._functorch.config.patch(force_non_lazy_backward_lowering=True)"
    extra = f", {backward}" if case.harness == "train" else ""
    return [*lines, f"with tracing(TracingContext(mode)){extra}:", INDENT + call]


def _inductor(case: Case) -> list[str]:
    kwargs = as_object(case.checkpoint.extra.get("kwargs"))
    given = [f"{key}=True" for key in ("is_backward", "is_inference") if kwargs.get(key) is True]
    return [
        "gm = graph()",
        "with tracing(TracingContext(mode)), V.set_fake_mode(mode), torch.no_grad():",
        f"{INDENT}FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)",
        f"{INDENT}compiled = compile_fx_inner({', '.join(['gm', 'fakes', *given])})",
    ]


def _fakes(case: Case) -> list[str]:
    """Return the lines of fake inputs: static, or with the recorded dimensions dynamic."""
    dims = settings.dynamic_dims(case)
    if any(as_object(case.checkpoint.inputs[place]).get("k") == "subclass" for place in dims):
        raise UnsupportedError("a graph is not given tensors of a subclass with dynamic sizes")
    if not dims:
        return ["fakes = [", *_static(case), "]"]
    lines = [
        "def fake(position, value, dynamic):",
        f"{INDENT}if not isinstance(value, torch.Tensor):",
        f"{INDENT * 2}return value",
        f"{INDENT}policy = [DimDynamic.DUCK if d in dynamic else DimDynamic.STATIC"
        " for d in range(value.dim())]",
        f"{INDENT}context = StatelessSymbolicContext(dynamic_sizes=policy)",
        f'{INDENT}source = ConstantSource(f"x{{position}}")',
        f"{INDENT}return mode.from_tensor(value, symbolic_context=context, source=source)",
        "",
        "",
        f"dynamic = {dims!r}",
        "fakes = [fake(i, x, dynamic.get(i, [])) for i, x in enumerate(inputs())]",
    ]
    positions = {node.name: i for i, node in enumerate(case.graph.placeholders)}
    for name, (tensor, dim) in derived_sizes(case.graph).items():
        lines.append(f"fakes[{positions[name]}] = fakes[{positions[tensor]}].size({dim})")
    return lines


def _static(case: Case) -> list[str]:
    all_tensors = all(as_object(d).get("k") == "tensor" for d in case.checkpoint.inputs)
    fake = "mode.from_tensor(x, static_shapes=True)"
    condition = "" if all_tensors else " if isinstance(x, torch.Tensor) else x"
    return [f"{INDENT}{fake}{condition}", f"{INDENT}for x in inputs()"]

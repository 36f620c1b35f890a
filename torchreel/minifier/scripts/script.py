"""The two forms of a repro, as complete scripts that import torch alone.

- compile: a function of the graph's nodes, given to `torch.compile`. What a person wants to see.
- graph: the very graph, built node by node and given to the compiler without Dynamo. For failures
  that Dynamo would hide, because it traces the function into another graph than the recorded one.

Lives here: what the two have in common, and their endings. Not here: functions (`functions`),
graphs (`graphs`), inputs (`inputs`), settings (`settings`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.escaping.python import comment_lines
from torchreel.formats.graphs.check import check_graph
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.resizing import resized_checkpoints
from torchreel.minifier.cases.side_effects import is_effectful
from torchreel.minifier.cases.source_case import RANDOM
from torchreel.minifier.oracle.predicates import Predicate, parse_predicate
from torchreel.minifier.scripts import (
    distributed,
    graphs,
    kernels,
    measuring,
    operators,
    settings,
    sharing,
)
from torchreel.minifier.scripts.functions import INDENT, Function, derived_sizes, function
from torchreel.minifier.scripts.inputs import InputLines
from torchreel.minifier.scripts.measuring import measuring_lines, recompiling_lines
from torchreel.minifier.scripts.names import variables
from torchreel.minifier.scripts.policies import Policies
from torchreel.minifier.scripts.validation.scripts import check_script, check_text, parsed
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.store.failures.signature import Signature
from torchreel.torch_compat.operators.dispatcher import register_operators

HANG_SECONDS = 60
"""Seconds after which a repro of a hang says that it hangs, where that is enough."""
MEMORY = 16 << 30
"""Bytes of address space after which a repro of a memory blow-up ends, to spare the machine."""

_IMPORTS = {
    "F": "import torch.nn.functional as F",
    "checkpoint": "from torch.utils.checkpoint import checkpoint",
    "CheckpointPolicy": "from torch.utils.checkpoint import CheckpointPolicy",
    "create_selective_checkpoint_contexts": (
        "from torch.utils.checkpoint import create_selective_checkpoint_contexts"
    ),
    "while_loop": "from torch._higher_order_ops.while_loop import while_loop",
    "tree_leaves": "from torch.utils._pytree import tree_leaves",
    "tree_map_only": "from torch.utils._pytree import tree_map_only",
    **measuring.IMPORTS,
    **distributed.IMPORTS,
}
_MODULES = ("math", "operator", "faulthandler", "resource", *measuring.MODULES)
_CONFIG = re.compile(r"(torch\.[\w.]*config)\.")


@dataclass(frozen=True)
class Script:
    """A form of a repro, its text, and the same as a test (empty: the text in a process)."""

    form: str
    text: str
    test: str = ""

    def imports(self, modules: Sequence[str]) -> tuple[str, ...]:
        """Return those of the user's modules that the text imports."""
        names = set(_imported(self.text))
        return tuple(module for module in modules if module in names)


def _imported(text: str) -> Iterator[str]:
    """Yield the modules that a program imports, with those that they are in."""
    try:
        program = ast.parse(text)
    except (SyntaxError, ValueError):  # it imports nothing, and its check says so
        return
    for node in ast.walk(program):
        found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in found:
            parts = name.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def refuse_forbidden(case: Case) -> None:
    """Raise `ForbiddenError` for a graph with a forbidden call: it becomes no program."""
    register_operators()
    check_graph(case.graph, case.checkpoint.inputs, operators.sources(case))


def refuse_untrusted(case: AnyCase, *, trust: bool) -> None:
    """Raise `UntrustedError` for code of a store, and `ForbiddenError` for a forbidden graph."""
    calls_kernels = isinstance(case, Case) and any(kernels.called(case.graph))
    if (case.is_code or calls_kernels) and not trust:
        raise UntrustedError(
            "The case is a program that came with the store: to check it runs its code. If you "
            "trust who made it, add --trust."
        )
    if isinstance(case, Case):
        refuse_forbidden(case)


def compile_form(
    case: Case, signature: Signature, header: Sequence[str], *, careful: bool = False
) -> Script:
    """Return the case as a function under `torch.compile`.

    `careful`: what Dynamo would take otherwise than it was recorded is written so that it does not,
    at the price of lines that nobody would write.
    """
    refuse_forbidden(case)
    bare = case.harness != "train"
    made = function("fn", case.graph, operators.sources(case), bare=bare, touch=careful)
    predicate = _predicate(signature)
    if predicate is not None and "recompiles" in predicate.names():
        return Script("compile", _recompiling(case, signature, header, made, predicate))
    arguments = ", ".join(["fn", "fullgraph=True", *settings.compile_arguments(case)])
    compiled = f"torch.compile({arguments})"
    mark = "maybe_mark_dynamic" if careful else "mark_dynamic"
    if predicate is not None or _needs_fresh_inputs(case, signature):
        inputs = [_inputs(case, keep_sizes=False, mark=mark)]
        ending = [f"compiled = {compiled}", *_ending(case, signature, "compiled(*inputs())", "fn")]
        ending = ending if predicate is None else measuring_lines(predicate, ending)
        body = _under(settings.contexts(case), ending)
    else:
        lines, names = _values(case, keep_sizes=False, mark=mark)
        given, inputs = ", ".join(names), []
        ending = _plain_ending(case, signature, f"{compiled}({given})", f"fn({given})")
        body = [*lines, *([""] if lines else []), *_under(settings.contexts(case), ending)]
    definitions = [_constants(case, made), made.policies, made.lines, *inputs]
    text = _assembled(case, signature, header, [*definitions, body])
    in_process = predicate is None and not (precautions(signature) or _set(case))
    test = ["def test_repro():", *(f"{INDENT}{line}".rstrip() for line in body)]
    tested = _assembled(case, signature, header, [*definitions, test]) if in_process else ""
    return Script("careful" if careful else "compile", text, tested)


def _set(case: Case) -> list[str]:
    """Return the lines that set something for the whole process, which no test may do."""
    before = [*settings.config_lines(case), *settings.ambient_lines(case)]
    return [*before, *distributed.world_lines(case)]


def _needs_fresh_inputs(case: Case, signature: Signature) -> bool:
    """Return True if what is run twice would not get the same inputs and numbers the
    second time, or if these are written to, to see which memory is shared.
    """
    changed = _changes_inputs(case.graph) or signature.message == sharing.KIND
    return case.harness == "accuracy" and changed


def _changes_inputs(graph: GraphDoc) -> bool:
    calls = (node for each in graph.graphs() for node in each.nodes if node.is_call)
    return any(is_effectful(node) or RANDOM.search(node.target) for node in calls)


def graph_form(case: Case, signature: Signature, header: Sequence[str]) -> Script:
    """Return the case as the graph that the compiler got."""
    refuse_forbidden(case)
    boxed = case.checkpoint.entry == "aot"
    call = "compiled(list(inputs()))" if boxed else "compiled(*inputs())"
    ending = [*graphs.compilation(case), *_ending(case, signature, call, "graph()")]
    predicate = _predicate(signature)
    if predicate is not None:
        ending = measuring_lines(predicate, ending)
    policies = Policies(operators.sources(case))
    builder = graphs.builder("graph", case, policies)
    parts = [
        policies.lines,
        builder,
        _inputs(case, keep_sizes=True, mark=""),
        _under(settings.contexts(case), ending),
    ]
    return Script("graph", _assembled(case, signature, header, parts, graphs.imports(case)))


def _predicate(signature: Signature) -> Predicate | None:
    found = signature.failure_class == "predicate"
    return parse_predicate(signature.message) if found else None


def _recompiling(
    case: Case, signature: Signature, header: Sequence[str], made: Function, predicate: Predicate
) -> str:
    """Return a script that calls the function with several sizes and counts what is compiled."""
    docs = [case.checkpoint, *resized_checkpoints(case.checkpoint)]
    names = [f"inputs_{number}" for number in range(len(docs))]
    inputs = [
        _inputs(replace(case, checkpoint=doc), keep_sizes=False, mark="", name=name)
        for name, doc in zip(names, docs, strict=True)
    ]
    found = [word for word in settings.compile_arguments(case) if word != "dynamic=True"]
    arguments = ", ".join(["fn", "fullgraph=True", *found])
    calls = measuring_lines(predicate, recompiling_lines(arguments, names))
    definitions = [_constants(case, made), made.policies, made.lines]
    parts = [*definitions, *inputs, _under(settings.contexts(case), calls)]
    return _assembled(case, signature, header, parts)


def _assembled(
    case: Case,
    signature: Signature,
    header: Sequence[str],
    parts: Sequence[Sequence[str]],
    imports: Sequence[str] = (),
) -> str:
    """Join header, imports, settings and parts, with two blank lines between them.

    Raises `UnsupportedError` for what a repro may not hold.
    """
    before = [*precautions(signature), *_set(case)]
    stubs = kernels.stubs(case)
    parts = [*operators.definitions(case), stubs, *parts]
    body = "\n\n\n".join("\n".join(part) for part in [before, *parts] if part)
    head = [*comments(header), "", *_import_lines(body, case.imports, imports), *imports]
    gap = "\n\n" if before else "\n\n\n"
    text = check_script("\n".join(head) + gap + body + "\n", case.imports)
    if not stubs:
        return text
    code = kernels.definitions(case, by_number=bool(imports))
    text = text.replace("\n".join(stubs), "\n".join(code), 1)
    check_text(text)
    parsed(text)
    return text


def with_header(script: Script, old: Sequence[str], new: Sequence[str]) -> Script:
    """Return a script with another header: nothing but comments changes."""
    before, after = "\n".join(comments(old)), "\n".join(comments(new))
    text, test = (part.replace(before, after, 1) for part in (script.text, script.test))
    return Script(script.form, text, test)


def comments(lines: Sequence[str]) -> list[str]:
    """Return free text as comments: nothing in it can end the comment."""
    return [part for line in lines for part in comment_lines(line)]


def _import_lines(body: str, imports: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return imports of what is used, besides the lines that are known already."""
    program = parsed(body)
    names = {node.id for node in ast.walk(program) if isinstance(node, ast.Name)}
    names -= set(re.findall(r"\w+", " ".join(known)))
    assigned = (node.targets[0] for node in program.body if isinstance(node, ast.Assign))
    configs = {match[1] for node in assigned if (match := _CONFIG.match(ast.unparse(node)))}
    extra = _joined(line for name, line in _IMPORTS.items() if name in names)
    standard = [f"import {name}" for name in sorted(names.intersection(_MODULES))]
    others = [f"import {name}" for name in ("torch", *sorted(configs), *imports)]
    return [*standard, *([""] if standard else []), *others, *extra]


def _joined(imports: Iterable[str]) -> list[str]:
    """Return imports; names from one module in one line."""
    found: dict[str, list[str]] = {}
    for line in imports:
        module, joined, name = line.partition(" import ")
        found.setdefault(module, []).extend([name] if joined else [])
    return [
        f"{module} import {', '.join(sorted(names))}" if names else module
        for module, names in found.items()
    ]


def waiting(scripts: Iterable[Script], signature: Signature, seconds: float) -> Iterator[Script]:
    """Yield the scripts; for a hang, first versions that wait as long as the reduction did.

    A compile that never ends is shown best by one that waits long. One that only takes longer than
    the limit may be over by then.
    """
    if signature.failure_class != "hang":
        yield from scripts
        return
    made = list(scripts)
    for wait in sorted({max(HANG_SECONDS, seconds), seconds}, reverse=True):
        for script in made:
            yield replace(script, text=script.text.replace(_later(HANG_SECONDS), _later(wait)))


def _later(seconds: float) -> str:
    return f"faulthandler.dump_traceback_later({seconds:g}, exit=True)"


def precautions(signature: Signature) -> list[str]:
    """Return the lines that make a script say more when it dies or hangs.

    They need `faulthandler`.
    """
    if signature.failure_class == "crash":
        return ["faulthandler.enable()"]
    if signature.failure_class == "hang":
        return [_later(HANG_SECONDS)]
    if signature.failure_class == "memory":
        return [f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))"]
    return []


def _constants(case: Case, made: Function) -> list[str]:
    """Return the lines of tensors that the graph holds and whose values were not recorded."""
    if not made.constants:
        return []
    writer = InputLines(case.checkpoint, list(made.constants.values()))
    return ["torch.manual_seed(0)", *writer.lines(list(made.constants))]


def _inputs(case: Case, *, keep_sizes: bool, mark: str, name: str = "inputs") -> list[str]:
    """Return `def inputs()`, which gives the same values at each call."""
    lines, names = _values(case, keep_sizes=keep_sizes, mark=mark, seed=True)
    lines.append(f"return ({', '.join(names)}{',' if len(names) == 1 else ''})")
    return [f"def {name}():", *(INDENT + line for line in lines)]


def _values(
    case: Case, *, keep_sizes: bool, mark: str, seed: bool = False
) -> tuple[list[str], list[str]]:
    """Return the statements that make the inputs, and their names.

    For a function (not `keep_sizes`), without what it reads off the sizes of its tensors.
    """
    graph, names = case.graph, variables(case.graph)
    left = {} if keep_sizes else derived_sizes(graph)
    given = dict(zip([n.name for n in graph.placeholders], case.checkpoint.inputs, strict=True))
    kept = {names[key]: value for key, value in given.items() if key not in left}
    made = list(InputLines(case.checkpoint, list(kept.values())).lines(list(kept)))
    if seed or any("torch.rand" in line for line in made) or _draws(case):
        made.insert(0, f"torch.manual_seed({case.seed})")
    return made + (_marks(case, kept, mark) if mark else []), list(kept)


def _draws(case: Case) -> bool:
    return any(RANDOM.search(node.target) for node in case.graph.nodes if node.is_call)


def _marks(case: Case, kept: dict[str, Json], mark: str) -> list[str]:
    """Return the lines that say which sizes are dynamic, where not all of them are."""
    if settings.all_dynamic(case):
        return []
    return [
        f"torch._dynamo.{mark}({name}, {dim})"
        for name, value in kept.items()
        for dim, size in enumerate(_sizes(value))
        if isinstance(size, str)
    ]


def _sizes(value: Json) -> list[Json]:
    return as_list(as_object(value).get("size"))


def _under(items: Sequence[str], lines: Sequence[str]) -> list[str]:
    if not items:
        return list(lines)
    return [f"with {', '.join(items)}:", *(INDENT + line for line in lines)]


def _ending(case: Case, signature: Signature, call: str, eager: str) -> list[str]:
    """Return the lines that use the compiled function, by harness."""
    if case.harness == "train":
        return [f"result = {call}", *_backward(case)]
    if case.harness == "accuracy" and signature.message == sharing.KIND:
        return sharing.ending(eager)
    if case.harness == "accuracy":
        return [
            "args = inputs()",
            f"expected = {eager}(*args), args",
            "args = inputs()",
            "actual = compiled(*args), args",
            _comparison(case, signature),
        ]
    return [call]


def _plain_ending(case: Case, signature: Signature, call: str, eager: str) -> list[str]:
    """Return the same for inputs that can be used twice."""
    if case.harness == "train":
        return [f"result = {call}", *_backward(case)]
    if case.harness == "accuracy":
        return [f"expected = {eager}", f"actual = {call}", _comparison(case, signature)]
    return [call]


def _backward(case: Case) -> list[str]:
    """Return the backward of the sum of all results that have one."""
    returned = [as_object(case.graph.by_name[name].value) for name in case.graph.output.inputs()]
    if len(returned) == 1 and str(returned[0].get("dtype")).startswith(("float", "bfloat")):
        return ["result[0].sum().backward()"]
    return [
        "outputs = [t for t in result if isinstance(t, torch.Tensor) and t.requires_grad]",
        "sum((t.abs() if t.is_complex() else t).sum().double() for t in outputs).backward()",
    ]


def _comparison(case: Case, signature: Signature) -> str:
    """Return the lines that compare eager and compiled."""
    differs = settings.users_comparator(case)
    if differs and signature.message in ("values", "nan"):
        pairs = "zip(tree_leaves(expected), tree_leaves(actual))"
        found = f"{differs}(one, other) for one, other in {pairs} if isinstance(one, torch.Tensor)"
        return f"torch.testing.assert_close(any({found}), False)"
    (rtol, atol), of = settings.comparison(case)
    compared = [f"tree_map_only(torch.Tensor, {of}, {x})" if of else x for x in _RESULTS]
    stride = ", check_stride=True" if signature.message == "stride" else ""
    return (
        f"torch.testing.assert_close({', '.join(compared)}, "
        f"rtol={rtol}, atol={atol}, equal_nan=True{stride})"
    )


_RESULTS = ("actual", "expected")


def candidate_script(case: AnyCase, wanted: Signature, *, trust: bool) -> str:
    """Return the script of a candidate, for a user's command, which runs it as it likes.

    Raises `UnsupportedError` if there is none, and `UntrustedError` if a part of it is code.
    """
    refuse_untrusted(case, trust=trust)
    if not isinstance(case, Case):
        raise UnsupportedError(f"{case.summary} is no graph")
    header = ["A candidate of torchreel: the command says whether it is interesting."]
    try:
        return compile_form(case, wanted, header).text
    except UnsupportedError:
        return graph_form(case, wanted, header).text

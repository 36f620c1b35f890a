"""Both forms of a repro are programs: complete, of torch alone, and compiled as the case was."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from tests.minifier.hand_made import chain, ref
from tests.minifier.real import case_from
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats.graphs.document import NodeDoc
from torchreel.formats.node_arguments import map_tree
from torchreel.minifier.cases.case import Case
from torchreel.minifier.repro.check import check
from torchreel.minifier.scripts.script import (
    candidate_script,
    compile_form,
    graph_form,
    with_header,
)
from torchreel.replay.child.restore import restore
from torchreel.store.failures.signature import Signature, crash_signature, hang_signature

SIGNATURE = Signature("exception", "lowering", "", ("KeyError",), (), "'weight'")
HEADER = ['KeyError """', "from a stranger\nimport os; os.abort()", "\x1b[2J"]


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight).sum(dim=-1)


def sized(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.size(0) * 2, -1) + x.size(0)


def branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x = np.concatenate([a, b], axis=0).astype(np.float32)
    return np.einsum("ij,jk->ik", x, x.T)[1:] + 1.5


CASES: dict[str, Callable[[], Case]] = {
    "inference": lambda: case_from(linear, torch.randn(3, 4), torch.randn(4, 4), harness="run"),
    "training": lambda: case_from(
        linear, torch.randn(3, 4), torch.randn(4, 4, requires_grad=True), harness="train"
    ),
    "comparison": lambda: case_from(
        linear, torch.randn(3, 4).t()[:, :2].t(), torch.randn(4, 4), harness="accuracy"
    ),
    "dynamic": lambda: case_from(sized, torch.randn(6, 4), dynamic=True, harness="accuracy"),
    "one dynamic size": lambda: case_from(sized, marked(torch.randn(6, 4)), harness="run"),
    "branch": lambda: case_from(branch, torch.randn(3), harness="run"),
}
FORMS = {"compile": compile_form, "graph": graph_form}


def marked(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.mark_dynamic(x, 0)
    return x


def without_imports(case: Case) -> Case:
    return replace(case, imports=())


# Each takes as long as importing torch and compiling: together they cover what forms differ in.
RUN = [
    ("compile", "comparison"), ("compile", "one dynamic size"), ("compile", "branch"),
    ("graph", "training"), ("graph", "dynamic"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind"), RUN)
def test_a_case_without_a_bug_ends_without_an_error(form: str, kind: str) -> None:
    script = FORMS[form](without_imports(CASES[kind]()), SIGNATURE, HEADER)
    found = check(script.text, SIGNATURE)
    assert found.detail == "it ended without an error", f"{script.text}\n{found.output}"


@pytest.mark.slow
def test_numpy_code_is_written_as_the_graph_that_dynamo_traced() -> None:
    case = without_imports(case_from(of_arrays, np.ones((3, 4)), np.ones((2, 4)), harness="run"))
    with pytest.raises(UnsupportedError, match="traced of NumPy code"):
        compile_form(case, SIGNATURE, [])
    script = graph_form(case, SIGNATURE, HEADER)
    assert 'torch._dynamo.utils.numpy_method_wrapper("astype")' in script.text
    found = check(script.text, SIGNATURE)
    assert found.detail == "it ended without an error", f"{script.text}\n{found.output}"


def set_data(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.data = y
    return x * 2 + y


@pytest.mark.slow
def test_setting_the_data_of_a_tensor_is_written_as_the_program_does_it() -> None:
    case = without_imports(case_from(set_data, torch.ones(4), torch.zeros(4), harness="run"))
    script = compile_form(case, SIGNATURE, [])
    assert "x.data = y" in script.text
    found = check(script.text, SIGNATURE)
    assert found.detail == "it ended without an error", f"{script.text}\n{found.output}"
    with pytest.raises(UnsupportedError, match="which has no name"):
        graph_form(case, SIGNATURE, [])


def of_attributes(a: np.ndarray) -> np.ndarray:
    return (a.T + 1).real


def test_attributes_of_arrays_are_written_by_their_names() -> None:
    case = without_imports(case_from(of_attributes, np.ones((3, 4)), harness="run"))
    script = graph_form(case, SIGNATURE, HEADER)
    assert 'numpy_attr_wrapper, (a, "T"))' in script.text


def test_dynamic_sizes_are_dynamic_again() -> None:
    every = compile_form(without_imports(CASES["dynamic"]()), SIGNATURE, []).text
    assert "torch.compile(fn, fullgraph=True, dynamic=True)" in every
    one = compile_form(without_imports(CASES["one dynamic size"]()), SIGNATURE, []).text
    assert "torch._dynamo.mark_dynamic(x, 0)" in one
    assert "dynamic=True" not in one


@pytest.mark.parametrize("form", FORMS)
def test_a_header_is_only_comments(form: str) -> None:
    text = FORMS[form](without_imports(CASES["inference"]()), SIGNATURE, HEADER).text
    head = text.splitlines()[:3]
    assert all(line.startswith("# ") for line in head)
    assert "\x1b" not in text
    imported = {alias.name for node in ast.walk(ast.parse(text)) for alias in _aliases(node)}
    assert {name.partition(".")[0] for name in imported} <= {"torch", "operator"}


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import) else []


def test_config_state_and_backend_are_set() -> None:
    case = without_imports(CASES["inference"]())
    entry = {"module": "inductor", "key": "max_fusion_size", "value": 1, "portable": True}
    outside = {**entry, "key": "cpp.cxx", "value": "touch owned"}
    unknown = {**entry, "key": "x; import os"}
    doc = replace(
        case.checkpoint,
        config=(entry, outside, unknown),
        ambient={
            "grad_enabled": False,
            "deterministic": [True, False],
            "dispatch_below": "autograd",
        },
    )
    text = compile_form(replace(case, checkpoint=doc, backend="aot_eager"), SIGNATURE, []).text
    assert "import torch._inductor.config\n" in text
    assert "torch._inductor.config.max_fusion_size = 1\n" in text
    assert "torch.use_deterministic_algorithms(True)\n" in text
    ambient = "with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():\n"
    assert f"{ambient}    torch.compile(fn, fullgraph=True, " in text
    assert 'backend="aot_eager"' in text
    assert "owned" not in text
    assert "import os" not in text


def test_crashes_and_hangs_say_where_they_are() -> None:
    case = without_imports(CASES["inference"]())
    assert "faulthandler.enable()" in compile_form(case, crash_signature("run", "", 11), []).text
    assert (
        "dump_traceback_later(60, exit=True)" in compile_form(case, hang_signature("run"), []).text
    )


def test_a_backend_of_a_module_is_imported_only_when_the_user_named_it() -> None:
    case = replace(without_imports(CASES["inference"]()), backend="planted:broken")
    text = compile_form(replace(case, imports=("planted",)), SIGNATURE, []).text
    assert "import planted\n" in text
    assert "torch.compile(fn, fullgraph=True, backend=planted.broken)" in text
    for name in ("planted:broken", 'x"), __import__("os").abort(', "planted:a b"):
        for form in FORMS.values():
            with pytest.raises(UnsupportedError):
                form(replace(case, backend=name), SIGNATURE, [])


def test_every_line_is_ascii_and_the_text_is_the_same_again() -> None:
    case: Any = without_imports(CASES["inference"]())
    one, other = (compile_form(case, SIGNATURE, HEADER).text for _ in range(2))
    assert one == other
    assert one.isascii()


def test_inputs_are_lines_unless_they_are_needed_twice() -> None:
    text = compile_form(without_imports(CASES["inference"]()), SIGNATURE, []).text
    assert "torch.compile(fn, fullgraph=True)(x, weight)\n" in text
    assert "def inputs" not in text
    compared = compile_form(without_imports(CASES["comparison"]()), SIGNATURE, []).text
    assert "expected = fn(x, weight)\n" in compared
    changing = case_from(lambda x: x.add_(1), torch.ones(3), harness="accuracy")
    assert "args = inputs()\n" in compile_form(without_imports(changing), SIGNATURE, []).text
    drawing = case_from(lambda x: x + torch.rand(3), torch.ones(3), harness="accuracy")
    assert "args = inputs()\n" in compile_form(without_imports(drawing), SIGNATURE, []).text


def test_another_header_changes_comments_alone() -> None:
    case = without_imports(CASES["inference"]())
    case = replace(case, checkpoint=replace(case.checkpoint, config=(), ambient={}))
    script = compile_form(case, SIGNATURE, HEADER)
    changed = with_header(script, HEADER, ["a message"])
    for before, after in ((script.text, changed.text), (script.test, changed.test)):
        assert after.startswith("# a message\n")
        assert ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))


def aliased(x: torch.Tensor, child: torch.Tensor) -> torch.Tensor:
    def body(child: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return child + 1, y + x

    return while_loop(lambda child, y: child < 2, body, (child, x.clone()))[0]


def test_what_a_body_closes_over_in_vain_is_used_in_the_careful_form() -> None:
    """pytorch issue 191582: a body that gets what is also carried."""
    case = without_imports(case_from(aliased, torch.ones(1), torch.tensor(0)))
    (name,) = case.graph.modules.keys() - {"cond_fn_0"}
    body = case.graph.modules[name]
    add = next(node for node in body.nodes if node.is_call and "x" in str(node.args[1]))
    nodes = tuple(
        replace(
            node, args=map_tree(node.args, lambda n: add.args[0] if n == add.name else {"n": n})
        )
        for node in body.nodes
        if node is not add
    )
    graph = replace(case.graph, modules={**case.graph.modules, name: replace(body, nodes=nodes)})
    case = case.with_graph(graph)
    plain = compile_form(case, SIGNATURE, [])
    careful = compile_form(case, SIGNATURE, [], careful=True)
    assert "+ 0" not in plain.text
    assert "    x + 0  # used in vain" in careful.text
    assert ".clone())" in careful.text


@pytest.mark.slow
def test_an_input_that_only_shares_memory_is_an_input_in_the_careful_form() -> None:
    base = torch.ones(20)
    inputs = base[:10], base.detach()[5:15]
    case = case_from(lambda x, y: (x.add_(1), y + 1), *inputs, backend="aot_eager", harness="run")
    nodes = tuple(n for n in case.graph.nodes if n.target != "fn:_operator.add")
    output = replace(nodes[-1], args=[{"t": []}])
    case = without_imports(case.with_graph(replace(case.graph, nodes=(*nodes[:-1], output))))
    script = compile_form(case, SIGNATURE, [], careful=True)
    assert "different autograd ._base tensors" in check(script.text, SIGNATURE).output


_ERROR = Signature("exception", "lowering", "inference", ("KeyError",), (), "'weight'")
_CALLS_KERNEL = NodeDoc(
    op="call_function", name="k", target="hop:triton_kernel_wrapper_mutation", args=[],
    kwargs={"kernel_idx": 0, "constant_args_idx": 0},
)  # fmt: skip


def test_no_script_for_a_command_has_a_kernel_of_the_store_without_trust() -> None:
    """Not one of a body that no node names, which FX leaves out."""
    case = chain(["relu"])
    first, *_, last = case.graph.nodes
    last = replace(last, args=[[ref(first.name)]])
    body = replace(case.graph, nodes=(first, _CALLS_KERNEL, last))
    graph = replace(case.graph, modules={"unused": body})
    hidden = replace(case, checkpoint=replace(case.checkpoint, graph=graph))
    assert "relu" in candidate_script(case, _ERROR, trust=False)
    with pytest.raises(UntrustedError):
        candidate_script(hidden, _ERROR, trust=False)
    with pytest.raises(UnsupportedError, match="Triton kernels"):
        restore(hidden.checkpoint, trust=False)

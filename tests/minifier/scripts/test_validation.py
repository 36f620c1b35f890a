"""A finished file is checked again: what a hole in the escaping would let through ends there."""
# ruff: noqa: RUF001

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache

import pytest

from tests.minifier.scripts.test_script import CASES, FORMS, SIGNATURE, without_imports
from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.predicates import QUANTITIES
from torchreel.minifier.repro.regression import text_of_test
from torchreel.minifier.scripts.script import Script
from torchreel.minifier.scripts.validation.issues import HEADINGS, check_issue
from torchreel.minifier.scripts.validation.scripts import check_program, check_script
from torchreel.store.failures.signature import (
    crash_signature,
    hang_signature,
    memory_signature,
    predicate_signature,
)


@cache
def the_case() -> Case:
    return without_imports(CASES["one dynamic size"]())


GOOD = """# head

import torch
import torch._inductor.config
import torch.nn.functional as F

torch._inductor.config.max_fusion_size = 1


def fn(x):
    y = torch.ops.aten.add.Tensor(F.silu(x), x.T)
    return torch.sym_max(3, y.size(0)).to(torch.float16)


x = torch.randn(3)
torch.compile(fn, fullgraph=True)(x)
"""
LINES = [
    "import subprocess", "from os import system", "from torch import load",
    "import torch.hub", "import torch as os", "exec('1')", "eval('1')", "open('a', 'w')",
    "__import__('os')", "getattr(torch, 'load')", "getattr(x, 'a' + 'b')", "torch.load('a')",
    "torch.hub.load('a')", "torch.ops.load_library('a')", "torch.ops.own.add(x)", "x.node.expr",
    "x.__class__", "fn.__globals__", "x.apply_(print)", "x.storage()", "torch", "unknown", "F",
    "torch._dynamo.utils.numpy_method_wrapper('__class__')", "torch._numpy.from_dlpack(x)",
    "torch._dynamo.utils.numpy_method_wrapper(x)", "y = getattr", "fn(getattr, (x, '__class__'))",
    "y = torch._dynamo.utils.numpy_attr_wrapper",
    "torch._dynamo.utils.numpy_attr_wrapper(x, '__class__')",
    "torch._dynamo.utils.numpy_attr_wrapper(x, x)",
    "torch.fx.Graph().call_function(torch._dynamo.utils.numpy_attr_wrapper, (x, '__reduce__'))",
    "torch.fx.Graph().call_function(torch._dynamo.utils.numpy_attr_wrapper, x)",
    "torch.fx.Graph().call_function(getattr, (x, '__class__'))",
    "torch._dynamo.utils.numpy_to_tensor_wrapper(os)",
    "(lambda: x).__code__", "del x", "x: int = 3", "class A: pass", "async def f(): pass",
    "@fn\ndef f(): pass", "def f(a=fn(1)): pass", "while x: pass", "global x",
    "torch.randn = fn", "torch._inductor.config.cpp.cxx = 'touch owned'", "x.y = 3",
    "torch._inductor.config.cpp.cxx = ('touch owned',)", "__builtins__ = x", "x.meta = torch.load",
    "torch.float32.to_complex", "torch.compile.__globals__", "ｏｓ = 1", "а = 1", "x = 'ß'",
    "x = 1 # a\u202eb", "x = 1 # \u00ad", "x = 1\fy = 2", "assert x", "yield_ = (yield)",
    "torch.nn.functional.__builtins__", "x = '", "raise SystemExit(1)", "with open('a'): pass",
    "try:\n    x\nexcept BaseException:\n    x", "f'{open(x)}'", "[z for z in open(x)]",
]  # fmt: skip


def test_a_repro_is_such_a_program() -> None:
    assert check_script(GOOD) == GOOD


@pytest.mark.parametrize("line", LINES)
def test_another_line_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedError, match=r"a repro may not hold|no program"):
        check_script(f"{GOOD}{line}\n")


def test_modules_of_the_users_may_be_used() -> None:
    text = f"{GOOD}import planted.ops\nplanted.ops.broken(torch.ops.own.add(x))\n"
    assert check_script(text, ["planted.ops"])
    with pytest.raises(UnsupportedError, match="'planted"):
        check_script(text, ["planted"])


@pytest.mark.parametrize("number", [0, 1])
def test_a_comment_may_not_choose_an_encoding(number: int) -> None:
    text = "# a\n" * number + "# coding: unicode_escape \\nimport os\n" + GOOD
    with pytest.raises(UnsupportedError, match="encoding"):
        check_script(text)
    with pytest.raises(UnsupportedError, match="encoding"):
        check_program(text, ast.parse(GOOD))


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_every_kind_of_case_is_such_a_program(form: str, kind: str) -> None:
    script = FORMS[form](without_imports(CASES[kind]()), SIGNATURE, ["head"])
    assert check_script(script.text) == script.text
    assert check_script(f"{script.text}import os\nos.times()\n")
    with pytest.raises(UnsupportedError, match=r"os\.abort"):
        check_script(f"{script.text}import os\nos.abort()\n")


SIGNATURES = {
    "crash": crash_signature("lowering", "", 11),
    "hang": hang_signature("lowering"),
    "memory": memory_signature("lowering"),
    **{
        name: predicate_signature(f'{name} ~ "a"' if known.kind == "text" else f"{name} > 1")
        for name, known in QUANTITIES.items()
    },
}


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_look_for_a_failure_is_such_a_program(form: str, name: str) -> None:
    case = replace(the_case(), harness="run")
    script = FORMS[form](case, SIGNATURES[name], ["head"])
    assert check_script(script.text) == script.text


def test_a_program_on_trust_is_that_program_and_nothing_else() -> None:
    program = ast.parse("import os\nos.abort()\n")
    assert check_program("# head\nimport os\n\nos.abort()\n", program)
    for text in ("import os\nos.abort()\nos.abort()\n", "import os # \u202e\nos.abort()\n"):
        with pytest.raises(UnsupportedError):
            check_program(text, program)


def test_a_repro_in_a_test_is_a_constant_of_it() -> None:
    for body in ("x = '''\\\n'", 'x = """', "x = '{head}'\n# größe"):
        (_, _, assigned, _) = ast.parse(text_of_test(Script("graph", f"# head\n\n{body}"))).body
        assert isinstance(assigned, ast.Assign)
        assert ast.literal_eval(assigned.value) == f"\n{body}"
    with pytest.raises(UnsupportedError):
        text_of_test(Script("graph", "import os\n\nx = 1\n"))


ISSUE = "".join(f"### {heading}\n\ntext `code` **strong**\n\n- item\n\n" for heading in HEADINGS)
MARKUP = [
    "# heading", "### heading", "heading\n===", "heading\n---", "---", "1. item", "> quote",
    "        code", "| a |\n| - |\n| b |", "[a](b)", "![a](b)", "<http://a.b>",
    "http://a.b", "www.a.b",
    "a@b.cc", "@torvalds", "#12", "org/repo#1", "GH-1", ":skull:", "<b>", "<!-- a -->", "*a*",
    "~~a~~", "```js\na\n```", "a  \nb", "a\\\nb", "&amp;", "[a]: b\n\n[a]", "\\@torvalds", "$x$",
    "a\u202eb", "a\u00adb", "<details>", "<img src=x>", "``` a", "a `b",
]  # fmt: skip


def test_an_issue_is_headings_lists_and_code() -> None:
    assert check_issue(f"<!-- title -->\n\n{ISSUE}```python\n@a\n```\n") is not None


@pytest.mark.parametrize("markup", MARKUP)
def test_other_markup_is_refused(markup: str) -> None:
    with pytest.raises(UnsupportedError, match="an issue may not hold"):
        check_issue(f"{ISSUE}{markup}\n")


@pytest.mark.parametrize("comment", ["<!-- a --->", "<!-- a --!> b -->", "<!-- a --> b -->"])
def test_a_comment_ends_once(comment: str) -> None:
    with pytest.raises(UnsupportedError, match="the HTML"):
        check_issue(f"{comment}\n\n{ISSUE}")

"""The passes over programs: what they propose, and the contract that they keep."""

from __future__ import annotations

import ast

import pytest

from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.passes.base import Pass
from torchreel.minifier.source.liveness import without_dead
from torchreel.minifier.source.passes import PHASES
from torchreel.minifier.source.passes.arguments import Arguments, Parameters
from torchreel.minifier.source.passes.blocks import Blocks, Ranges
from torchreel.minifier.source.passes.classes import Flatten, MergeInstances, MergeValues
from torchreel.minifier.source.passes.inline import InlineFunctions, InlineVariables
from torchreel.minifier.source.passes.numbers import Numbers
from torchreel.minifier.source.passes.operands import HoistOperands, OwnCalls
from torchreel.minifier.source.passes.settings import SimplerCall
from torchreel.minifier.source.passes.statements import Statements, Unused, Values

PASSES = [item for phase in PHASES for tier in phase for item in tier]

PROGRAM = """\
import math
import torch
from torch import nn
torch._dynamo.config.cache_size_limit = 3

class Layer(nn.Module):
    scale = 2

    def forward(self, x, mask=None):
        x = self.norm(x) * self.scale
        if mask is not None:
            x = x + mask
        else:
            x = helper(x, k=7)
        return self.more(x)

    def more(self, x):
        for i in [1, 2]:
            x = x + i
        with torch.no_grad():
            y = x
        y = y + 1
        y = y + 2
        y = y + 3
        return y

def helper(a, b=1, k=0):
    c = a + b
    return c * 2

def unused(a):
    return a

class Other:
    def forward(self, x):
        return x
other = Other()
first = Layer()
first.norm = nn.LayerNorm(16)
second = Layer()
second.norm = nn.LayerNorm(16)
n = 16
low = torch.ones(16)
high = torch.ones(16)

def fn(x, y):
    z = first(other.forward(x + low * high))
    try:
        z = second(z)
    finally:
        z = [z, y][0]
    return z if n > 3 else x
with torch.no_grad():
    torch.compile(fn, dynamic=True)(torch.randn(4, n), torch.randn(4))
"""


def case(text: str = PROGRAM) -> SourceCase:
    """A program in the canonical layout."""
    return SourceCase(ast.unparse(ast.parse(text)) + "\n")


def candidates(item: Pass[SourceCase], text: str) -> list[str]:
    """Every program that a pass makes with a single edit."""
    start = case(text)
    found = (item.apply(start, [edit]) for edit in item.edits(start))
    return [candidate.text for candidate in found if candidate is not None]


@pytest.mark.parametrize("item", PASSES, ids=lambda item: item.name)
def test_a_pass_keeps_its_contract(item: Pass[SourceCase]) -> None:
    """The same edits again, never the same case, always a program, and at least one proposal."""
    start = case()
    edits = item.edits(start)
    assert edits == item.edits(case())
    made = [item.apply(start, [edit]) for edit in edits]
    made += [item.apply(start, edits[:n]) for n in range(2, len(edits) + 1)]
    found = [candidate for candidate in made if candidate is not None]
    assert all(candidate.digest != start.digest for candidate in found)
    assert all(ast.unparse(candidate.tree) + "\n" == candidate.text for candidate in found)
    assert all("torch.compile(" in candidate.text for candidate in found)
    assert found
    assert any(sort_key(candidate) < sort_key(start) for candidate in found)


def test_the_order_prefers_few_statements() -> None:
    """Then functions to classes, small expressions, the backend that does nothing."""
    call = "torch.compile(fn)(1)\n"
    programs = [
        f"def fn(x):\n    return x\n{call}".replace("compile(fn)", "compile(fn, backend='eager')"),
        f"def fn(x):\n    return x\n{call}",
        f"def fn(x):\n    return x + 1\n{call}",
        f"def fn(x):\n    return x + 12\n{call}",
        f"def fn(x):\n    y = x\n    return y\n{call}",
        f"class C:\n    pass\ndef fn(x):\n    return x\n{call}",
    ]
    keys = [sort_key(case(text)) for text in programs]
    assert keys == sorted(keys)


def test_a_name_that_nothing_binds_needs_no_run() -> None:
    """Removing a definition that is used is no candidate."""
    text = "import torch\ny = 1\nz = 2\n\ndef fn(x):\n    return x + y\ntorch.compile(fn)(2)\n"
    without_z, without_return = candidates(Statements(), text)
    assert "z = 2" not in without_z
    assert "pass" in without_return


@pytest.mark.parametrize(
    ("start", "body"),
    [
        ("from math import *", "y = sqrt(x)"),
        ("import math", "match x:\n        case [p, *q]:\n            y = p\n        case {**r}:\n"
         "            y = r\n        case other:\n            y = other"),
        ("class A:\n    def f(self):\n        return __class__", "y = A().f()"),
    ],
)  # fmt: skip
def test_a_name_that_was_never_bound_is_no_reason_to_refuse(start: str, body: str) -> None:
    """It comes from a module, or is one that Python binds."""
    text = f"{start}\nz = 2\ndef fn(x):\n    {body}\n    return y\ntorch.compile(fn)(2)\n"
    assert any("z = 2" not in candidate for candidate in candidates(Statements(), text))


def test_unused_definitions_go_together() -> None:
    """What is used stays."""
    start = case()
    found = Unused().apply(start, Unused().edits(start))
    assert found is not None
    assert "unused" not in found.text
    assert "import math" not in found.text
    assert "def helper" in found.text


def test_what_an_edit_leaves_without_a_use_goes_with_it() -> None:
    """Functions, methods, objects and their attributes, in one step; what had no use stays."""
    (found,) = [t for t in candidates(OwnCalls(), PROGRAM) if "x = x\n" in t]
    assert "def helper" not in found
    assert "def unused" in found
    text = """\
import torch

class Layer(torch.nn.Module):

    def forward(self, x):
        return self.norm(x) + self.more(x)

    def more(self, x):
        return x * self.k
layer = Layer()
layer.norm = torch.nn.LayerNorm(2)
layer.k = 3

def fn(x):
    return layer(x)
torch.compile(fn)(torch.ones(2))
"""
    left = candidates(HoistOperands(), text)
    (whole,) = [found for found in left if "    return x\ntorch" in found]
    assert "layer" not in whole.lower()
    (first,) = [found for found in left if "return self.norm(x)\n" in found]
    assert "layer.norm" in first
    assert "layer.k" not in first
    assert "def more" not in first
    (second,) = [found for found in left if "return self.more(x)\n" in found]
    assert "layer.norm" not in second
    assert "layer.k" in second


def test_half_of_a_block_goes_at_once() -> None:
    """Where it is long enough for that to be worth a run."""
    body = "".join(f"    a{n} = x + {n}\n" for n in range(7))
    text = f"import torch\n\ndef fn(x):\n{body}    return x\ntorch.compile(fn)(3)\n"
    counts = [found.count(" = x + ") for found in candidates(Ranges(), text)]
    assert counts == [4, 3, 6, 5, 5, 5]


def test_a_value_need_not_be_kept() -> None:
    """Its expression is a statement of its own."""
    text = "import torch\n\ndef fn(x):\n    a, b = torch.sort(x)\ntorch.compile(fn)(3)\n"
    assert "    torch.sort(x)\n" in candidates(Values(), text)[0]


BLOCKS = [
    ("if a:\n    f(1)\nelse:\n    f(2)", ["f(1)", "f(2)", "a"]),
    ("for i in [1, 2]:\n    f(i)", ["i = next(iter([1, 2]))\nf(i)", "f(i)", "[1, 2]"]),
    ("while a:\n    f(1)", ["f(1)", "a"]),
    (
        "for i in a:\n    f(i)\nelse:\n    g(2)",
        ["i = next(iter(a))\nf(i)", "f(i)", "g(2)", "a"],
    ),
    ("while a:\n    f(1)\nelse:\n    f(2)", ["f(1)", "f(2)", "a"]),
    (
        "try:\n    f(1)\nexcept Exception:\n    f(2)\nelse:\n    f(3)\nfinally:\n    f(4)",
        ["f(1)\nf(3)\nf(4)", "f(1)\nf(4)", "f(2)"],
    ),
    ("match a:\n    case 1:\n        f(1)\n    case _:\n        f(2)", ["f(1)", "f(2)", "a"]),
    ("try:\n    f(1)\nexcept* ValueError:\n    f(2)", ["f(1)", "f(2)"]),
    ("with g() as h:\n    f(h)", ["h = g()\nf(h)"]),
    ("try:\n    f(1)\nexcept Exception:\n    f(2)\nfinally:\n    f(3)", ["f(1)\nf(3)", "f(2)"]),
]


@pytest.mark.parametrize(("text", "expected"), BLOCKS)
def test_one_block_stands_for_a_compound_statement(text: str, expected: list[str]) -> None:
    """Each of them in turn."""
    names = "a = f = g = i = 0\n"
    last = "torch.compile(f)(1)\n"
    found = candidates(Blocks(), f"import torch\n{names}{text}\n{last}")
    assert found == [f"import torch\n{names}{block}\n{last}" for block in expected]


def test_the_metaclass_of_a_class_is_reached() -> None:
    text = "class Meta(type):\n    pass\nclass A(metaclass=Meta):\n    pass\n"
    text += "class B:\n    pass\nprint(A)\n"
    assert "class Meta" in without_dead(text)
    assert "class B" not in without_dead(text)


def only_body(texts: list[str]) -> list[str]:
    """What a function `fn` returns in each of these programs."""
    return [text.partition("return ")[2].partition("\n")[0] for text in texts]


def test_an_operand_stands_for_an_operation() -> None:
    """With the parentheses that it needs, and no module for a value."""
    text = "import torch\n\ndef fn(x):\n    return torch.relu(x + 1) * 2\ntorch.compile(fn)(3)\n"
    assert only_body(candidates(HoistOperands(), text)) == [
        "torch.relu(x + 1)", "2", "(x + 1) * 2", "torch.relu(x) * 2", "torch.relu(1) * 2",
    ]  # fmt: skip


def test_an_argument_goes() -> None:
    """Also those of torch.compile, but never the function."""
    text = "import torch\n\ndef fn(x):\n    return f(x, [1], k=x)\nf = 1\n"
    text += "torch.compile(fn, dynamic=True)(3)\n"
    found = candidates(Arguments(), text)
    assert set(only_body(found)) == {
        "f(x, [1])", "f(x, [], k=x)", "f(x, k=x)", "f([1], k=x)", "f(x, [1], k=x)",
    }  # fmt: skip
    assert any("torch.compile(fn)(3)" in text for text in found)
    assert any("torch.compile(fn, dynamic=True)()" in text for text in found)


def test_a_static_method_stays_one() -> None:
    """Other decorators go."""
    text = "import torch\n\nclass A:\n    @staticmethod\n    @other\n    def f(x):\n        pass\n"
    found = candidates(Arguments(), f"{text}torch.compile(A.f)(3)\n")
    assert any("@other" not in text for text in found)
    assert all("@staticmethod" in text for text in found)


def test_a_parameter_that_is_given_by_name_alone_goes() -> None:
    text = "import torch\ndef fn(x, *, scale=None, mask=None):\n    return x.sin() * scale\n"
    (found,) = candidates(Parameters(), f"{text}torch.compile(fn)(1, mask=2, scale=3)\n")
    assert found.startswith("import torch\n\ndef fn(x, *, scale=None):")
    assert found.endswith("torch.compile(fn)(1, scale=3)\n")
    text = "import torch\ndef fn(x, *, mask):\n    return x.sin()\n"
    (found,) = candidates(Parameters(), f"{text}torch.compile(fn)(1, mask=2)\n")
    assert found == "import torch\n\ndef fn(x):\n    return x.sin()\ntorch.compile(fn)(1)\n"


def test_a_parameter_goes_with_its_arguments() -> None:
    """Positional, by name, and in the call that ends the program."""
    text = "import torch\n\ndef fn(x, y):\n    return x\nfn(1, 2)\nfn(1, y=2)\n"
    (found,) = candidates(Parameters(), f"{text}torch.compile(fn)(1, 2)\n")
    assert found.count("fn(1)") == 2
    assert "torch.compile(fn)(1)" in found


def test_a_parameter_of_a_method_or_a_nested_function_goes() -> None:
    """With the arguments of the class, of the object's method, and of the function's name."""
    text = """\
import torch

def make(log):
    class Timer:
        def __init__(self, name):
            self.seen = log
        def touch(self, x):
            def inner(y):
                return self.seen
            return inner(x)
    def fn(x, scale):
        timer = Timer('a')
        return timer.touch(x) + Timer.touch(timer, x)
    return fn
fn = make([])
"""
    found = candidates(Parameters(), f"{text}torch.compile(fn)(1, 2)\n")
    kept = [
        [part in text for part in ("Timer()", "torch.compile(fn)(1)", "inner()", "timer.touch()")]
        for text in found
    ]
    assert sorted(kept) == sorted(
        [[True, False, False, False], [False, True, False, False], [False, False, True, False]]
    )
    (dropped,) = candidates(Parameters(), METHOD)
    assert "def touch(self):" in dropped
    assert "timer.touch() + Timer.touch(timer)" in dropped


METHOD = """\
import torch

class Timer:
    def touch(self, x):
        return 1
timer = Timer()
def fn():
    return timer.touch(2) + Timer.touch(timer, 3)
torch.compile(fn)()
"""


def test_a_function_is_inlined() -> None:
    """Its statements before the one that calls it; simple arguments in place of parameters."""
    text = """\
import torch

def helper(a, b=1):
    c = a + b
    return c * 2

def fn(x):
    y = helper(x)
    return y
torch.compile(fn)(3)
"""
    (found,) = candidates(InlineFunctions(), text)
    assert (
        found
        == ast.unparse(
            ast.parse("""\
import torch
def fn(x):
    c = x + 1
    y = c * 2
    return y
torch.compile(fn)(3)
""")
        )
        + "\n"
    )


def test_a_function_with_a_lambda_is_inlined() -> None:
    """Unless the lambda hides a parameter of the function."""
    call = "\ndef fn(x):\n    return helper(x)\ntorch.compile(fn)(3)\n"
    for name, expected in (("b", ["sorted(x, key=lambda b: -b)"]), ("a", [])):
        body = f"    return sorted(a, key=lambda {name}: -{name})\n"
        found = candidates(InlineFunctions(), f"import torch\ndef helper(a):\n{body}{call}")
        assert only_body(found) == expected


def test_a_variable_is_inlined() -> None:
    """One that is assigned and used once."""
    text = "import torch\n\ndef fn(x):\n    y = x + 1\n    return y * 2\ntorch.compile(fn)(3)\n"
    assert "return (x + 1) * 2" in candidates(InlineVariables(), text)[0]


def test_a_class_becomes_functions() -> None:
    """Its object is the function that a call of it would have called."""
    text = """\
import torch

class Layer(torch.nn.Module):

    def forward(self, x):
        return self.more(self.norm(x))

    def more(self, x):
        return x + self.k
layer = Layer()
layer.norm = torch.nn.LayerNorm(2)
layer.k = 3
torch.compile(Layer.forward)(layer, torch.ones(2))
"""
    (found,) = candidates(Flatten(), text)
    assert (
        found
        == """\
import torch

def layer(x):
    return more(norm(x))

def more(x):
    return x + k
norm = torch.nn.LayerNorm(2)
k = 3
torch.compile(layer)(torch.ones(2))
"""
    )


def test_one_object_stands_for_two() -> None:
    """Of the same class."""
    (found,) = [text for text in candidates(MergeInstances(), PROGRAM) if "second" not in text]
    assert found.count("first(") == 2
    (found,) = candidates(MergeValues(), PROGRAM)
    assert "low * low" in found


def test_merging_is_proposed_for_two_others_of_a_kind() -> None:
    """For each of all others, a program of many values would have as many edits as pairs."""
    names = [f"x_{i}" for i in range(60)]
    made = "".join(f"{name} = torch.ones(3)\n" for name in names)
    text = f"import torch\n{made}torch.compile(f)({', '.join(names)})\n"
    assert not MergeInstances().edits(SourceCase(text))
    assert len(MergeValues().edits(SourceCase(text))) == 59 + 58
    text = text.replace("import torch\n", "import torch\nclass A:\n    pass\n")
    text = text.replace("torch.ones(3)", "A()")
    assert len(MergeInstances().edits(SourceCase(text))) == 59 + 58
    assert not MergeValues().edits(SourceCase(text))


def test_equal_numbers_change_together() -> None:
    """16 is a size in two places."""
    text = "import torch\nfn = 1\ntorch.compile(fn)(torch.ones(16, 16))\n"
    assert any("torch.ones(2, 2)" in found for found in candidates(Numbers(), text))


def test_the_backend_that_does_nothing_is_tried() -> None:
    """Without the options of another one."""
    text = "import torch\nfn = 1\ntorch.compile(fn, options={'a': 1}, fullgraph=True)(1)\n"
    (found,) = candidates(SimplerCall(), text)
    assert "torch.compile(fn, fullgraph=True, backend='eager')(1)" in found

"""A program as a repro: laid out anew, and nothing in it that is not seen."""

from __future__ import annotations

import ast
import sys

import pytest

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.scripts.script import Script
from torchreel.minifier.scripts.source_form import comparing_forms, source_form
from torchreel.store.failures.signature import Signature, crash_signature, memory_signature

PROGRAM = """\
import torch

NAME = {text!r}

def fn(x):
    return x + 1

torch.compile(fn)(torch.ones(2))
"""
ERROR = Signature("exception", "dynamo", "", ("KeyError",), (), "message")
HEADER = ["coding: unicode_escape \\nimport os", "a\nb"]


def test_a_program_is_the_same_with_its_strings_in_ascii() -> None:
    for text in ("größe", "\u3164", "a\u0300b", "plain", "\u202e", "'''\n"):
        program = PROGRAM.format(text=text)
        script = source_form(SourceCase(program), ERROR, HEADER).text
        assert script.isascii()
        assert ast.dump(ast.parse(script)) == ast.dump(ast.parse(program))


def test_an_expression_in_a_string_may_hold_visible_letters() -> None:
    program = PROGRAM.format(text="") + """raise ValueError(f"bad {NAME['größe']}")\n"""
    script = source_form(SourceCase(program, whole=True), ERROR, HEADER).text
    assert ast.dump(ast.parse(script)) == ast.dump(ast.parse(program))
    if sys.version_info < (3, 12):
        with pytest.raises(UnsupportedError):
            source_form(SourceCase(program.replace("ö", "\u202e"), whole=True), ERROR, HEADER)


@pytest.mark.parametrize("name", ["x\u3164", "x\ufe0f", "x\u0300\u0300\u0300\u0300\u0300"])
def test_a_name_that_can_not_be_seen_is_refused(name: str) -> None:
    program = f"{PROGRAM.format(text='')}".replace("NAME", name)
    try:
        ast.parse(program)
    except SyntaxError:
        pytest.skip("this Python takes no such name")
    with pytest.raises(UnsupportedError, match="can't be seen"):
        source_form(SourceCase(program), ERROR, [])


@pytest.mark.parametrize(
    ("signature", "lines"),
    [
        (crash_signature("dynamo", "", 11), ["import faulthandler", "faulthandler.enable()"]),
        (memory_signature("dynamo"), ["import resource"]),
        (ERROR, []),
    ],
)
def test_what_is_done_first_is_imported(signature: Signature, lines: list[str]) -> None:
    script = source_form(SourceCase(PROGRAM.format(text="")), signature, HEADER).text
    body = [ast.unparse(node) for node in ast.parse(script).body]
    assert [line for line in lines if line not in body] == []
    assert body.count("import torch") == 1


LATER = """\
'''A text.'''
from __future__ import annotations
import sys
sys.path.insert(0, "/opt/lib")
import math
import os.path as p
from json import *
def fn(x: Unknown):
    return math.floor(x) + len(p.sep)
seen = fn(2.5)
"""


@pytest.mark.parametrize("signature", [crash_signature("dynamo", "", 11), ERROR])
def test_what_stands_before_an_import_stays_before_it(signature: Signature) -> None:
    """And what has to be first is: what a script does itself comes after that."""
    script = source_form(SourceCase(LATER, whole=True), signature, []).text
    compile(script, "script", "exec")
    assert script.index("sys.path") < script.index("import math")
    assert script.index("__future__") < script.index("import sys")


def test_later_imports_are_in_both_runs() -> None:
    script = next(comparing_forms(SourceCase(LATER, observes="seen", whole=True), [])).text
    exec(compile(script, "script", "exec"), {})
    assert script.index("sys.path") < script.index("import math")


def test_an_annotated_global_is_one_in_both_runs() -> None:
    """A function may not annotate a global name."""
    program = (
        "import torch\nx: torch.Tensor = torch.ones(3)\ny: int\n"
        "if True:\n    z: int = 2\nclass A:\n    b: int = 1\nseen = z + 1\n"
    )
    case = SourceCase(program, observes="seen", whole=True)
    for script in comparing_forms(case, []):
        scope: dict[str, object] = {}
        exec(compile(script.text, "script", "exec"), scope)
        assert "b: int = 1" in script.text
        assert ("z" in scope) == (script.form == "global program")


def test_names_of_a_program_are_global_in_the_last_form_only() -> None:
    """Nobody would write it so; but to code that asks for globals it is the only one."""
    program = "import torch\ntotal = 0\ndef count():\n    global total\n    total += 1\ncount()\n"
    case = SourceCase(program, observes="total", whole=True)
    forms = {script.form: script.text for script in comparing_forms(case, [])}
    assert list(forms) == ["program", "global program"]
    assert [text.count("global ") for text in forms.values()] == [1, 2]


def test_both_runs_share_the_classes_that_need_nothing_of_the_program() -> None:
    """Of two classes, `assert_close` compares no objects."""
    program = (
        "import torch\nsize = 3\n"
        "def helper(x): return x\n"
        "class A:\n    def get(self): return helper(self), B\n"
        "class B(A): pass\n"
        "class C:\n    at = size\n"
        "def made(): return B(), C()\n"
        "seen = [type(each) for each in made()]\n"
    )
    case = SourceCase(program, observes="seen[0]", whole=True)
    forms = {script.form: script.text for script in comparing_forms(case, [])}
    assert list(forms) == ["program", "program beside its classes", "global program"]
    scope: dict[str, object] = {}
    text = forms["program beside its classes"]
    exec(compile(text, "script", "exec"), scope)
    assert {"A", "B", "helper"} <= set(scope)
    assert {"C", "made", "size", "seen"}.isdisjoint(scope)
    assert scope["actual"] is scope["expected"] is scope["B"]


def test_a_program_that_needs_caches_begins_with_empty_ones() -> None:
    case = SourceCase(PROGRAM.format(text=""), caches=True, observes="result")
    scripts = [source_form(case, crash_signature("dynamo", "", 11), []), *comparing_forms(case, [])]
    for script in scripts:
        lines = script.text.splitlines()
        emptied = lines.index("os.environ['TORCHINDUCTOR_CACHE_DIR'] = tempfile.mkdtemp()")
        assert {"import os", "import tempfile"} <= set(lines[:emptied])


def test_comparing_forms_are_programs_of_ascii() -> None:
    forms: list[Script] = list(
        comparing_forms(SourceCase(PROGRAM.format(text="ß"), observes="result"), HEADER)
    )
    assert {script.form for script in forms} == {"function", "program", "global program"}
    for script in forms:
        assert script.text.isascii()
        assert "import os" not in [ast.unparse(node) for node in ast.parse(script.text).body]

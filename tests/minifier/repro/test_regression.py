"""A repro as a test: it fails while the bug is there, in a process that has torch alone."""

from __future__ import annotations

import ast

import pytest

from torchreel.minifier.repro.check import check
from torchreel.minifier.repro.regression import check_as_test, text_of_test
from torchreel.minifier.scripts.script import Script
from torchreel.store.failures.signature import Signature, crash_signature

ERROR = Signature("exception", "lowering", "", ("KeyError",), (), "'weight'")
FAILS = "raise KeyError('weight')"


def test_a_test_is_called_and_its_error_is_the_one() -> None:
    script = Script("compile", FAILS, f"def test_repro():\n    {FAILS}\n")
    assert check_as_test(script, ERROR, ()).exact
    healthy = Script("compile", FAILS, "def test_repro():\n    pass\n")
    assert not check_as_test(healthy, ERROR, ()).holds


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", True),
        ("print('a \\'\\'\\' in it, and a \\\\')\nraise SystemExit(1)\n", True),
        ("pass\n", False),
    ],
)
def test_what_ends_its_process_has_one_of_its_own(body: str, holds: bool) -> None:
    script = Script("compile", f"# head\n\n{body}")
    text = text_of_test(script)
    (repro,) = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
    assert ast.literal_eval(repro.value).strip() == body.strip()
    assert check_as_test(script, crash_signature("run", "", 11), ()).holds is holds


def test_the_message_is_told_as_it_was_raised() -> None:
    assert check("raise ValueError('3 of 4\\nmore')", ERROR).message == "ValueError: 3 of 4"
    assert check("pass", ERROR).message == ""


def test_another_error_in_a_process_is_not_the_failure() -> None:
    for text in ("raise RuntimeError('something else')", "import a_module_of_mine"):
        script = Script("program", f"# A repro.\n\n{text}\n")
        assert not check_as_test(script, ERROR, ()).holds


def test_a_module_is_imported_in_whatever_way() -> None:
    text = "import a.b as c\nfrom d.e import f\nfrom g import h\n"
    named = ("a", "a.b", "d.e", "g", "g.h", "x", "f")
    assert Script("program", text).imports(named) == ("a", "a.b", "d.e", "g", "g.h")

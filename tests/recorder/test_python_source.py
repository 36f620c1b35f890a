"""Parsing the program's source: its warnings are not the program's."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from torchreel import python_source

_WARNS = r'pattern = "\(" if 1or 2 else b"\d"'

PROGRAM = r"""
import sys, warnings
import torch, torch._dynamo
class Wrong(Exception): pass
PATTERN = "\("
def fail(grad):
    if PATTERN: raise Wrong("wrong")
@torch._dynamo.allow_in_graph
def total(a):
    r = a.sum()
    r.register_hook(fail)
    return r
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        torch.compile(lambda a: total(a), backend="aot_eager")(torch.ones(2, requires_grad=True))
    except torch._dynamo.exc.BackendCompilerFailed:
        print([str(one.message)[:40] for one in caught])
"""


@pytest.mark.parametrize("parse", [python_source.parse, python_source.symbols])
def test_parsing_warns_of_nothing_and_leaves_the_filters(parse) -> None:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        parse(_WARNS)
        assert not caught
        assert warnings.filters == before
        ast.parse(_WARNS)
        assert caught


def test_parsing_raises_where_warnings_are_errors_only_for_what_is_no_program() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert python_source.parse(_WARNS).body
        with pytest.raises(SyntaxError):
            python_source.parse("1 2")


def test_filters_of_other_threads_stay() -> None:
    mine = ("ignore", None, UserWarning, None, 7)
    with warnings.catch_warnings():
        with python_source._without_warnings():
            other = threading.Thread(target=lambda: warnings.filters.insert(0, mine))  # type: ignore[attr-defined]
            other.start()
            other.join()
        assert mine in warnings.filters
        with python_source._without_warnings():
            warnings.resetwarnings()
        assert not warnings.filters


def test_a_program_that_collects_warnings_gets_none_of_its_recorder(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-W", "ignore", str(program)]
    record = [sys.executable, "-m", "torchreel.cli", "record", "-o", str(tmp_path / "run.db"), "--"]
    plain, recorded = (
        subprocess.run(each, capture_output=True, text=True).stdout
        for each in (command, [*record, *command])
    )
    assert "forward call that caused the error" in plain or "Error detected in" in plain
    assert plain == recorded

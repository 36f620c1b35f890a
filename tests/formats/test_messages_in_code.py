"""What Inductor makes of the messages of assertions that a stranger's graph may have."""

from __future__ import annotations

import ast
import re
import tokenize
from io import StringIO
from unittest import mock

import pytest
import torch
from torch._inductor.graph import GraphLowering

from torchreel.errors import ForbiddenError
from torchreel.formats.allowed import strings
from torchreel.torch_compat.inductor.code_generation import without_cpp_compiler

PLAIN = "plain"
ADMITTED = ["it's {x} %s", "''#//*/", "1), 0)); //", "KERNEL_NAME", "${a} <b> &c; `d` $(e) |"]
REFUSED = ["a'''), PLANTED, (r'''", 'a"), 0)); planted(); throw ("', "a\nPLANTED = 1", "a\\"]


def code_of(message: str, ends: str = "never compiled") -> str:
    """Return what Inductor writes for a graph with this message in its assertions.

    `ends` is what the error says with which its Python ends when it is loaded or called.
    """

    def asserts(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async.msg((x > 0).all(), message)
        torch._assert_async(x[0] > 0, message)  # type: ignore[call-overload]
        return x + 1

    written: list[str] = []
    torch._dynamo.reset()
    with (
        without_cpp_compiler(),
        mock.patch.object(GraphLowering, "save_output_code", written.append),
        pytest.raises(Exception, match=ends),
    ):
        torch.compile(asserts, fullgraph=True)(torch.ones(8))
    (code,) = written
    return re.sub(r"(?m)^# AOT ID: .*$", "", code)  # numbered in each process


def has_same_form(code: str, plain: str, message: str) -> bool:
    """Return True if one code is the other with a message in place of another, in Python too."""
    if code.replace(message, PLAIN) != plain or f'"{message}"' not in code:
        return False
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return _tokens(code) == _tokens(plain)


def _tokens(code: str) -> list[int]:
    return [token.type for token in tokenize.generate_tokens(StringIO(code).readline)]


@pytest.mark.slow
def test_an_admitted_message_stays_in_its_string() -> None:
    plain = code_of(PLAIN)
    assert plain.count(f'std::runtime_error("{PLAIN}")') == 2
    for message in ADMITTED:
        strings.check_message(message)
        assert has_same_form(code_of(message), plain, message), message
    for message in REFUSED:
        with pytest.raises(ForbiddenError):
            strings.check_message(message)
    # Without the rule, torch itself loads the text as Python.
    planted = code_of(REFUSED[0], ends="name 'PLANTED' is not defined")
    assert not has_same_form(planted, plain, REFUSED[0])

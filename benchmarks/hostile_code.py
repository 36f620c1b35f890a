"""Does a text of a stranger's graph become code in what Inductor generates?

Lives here: having Inductor generate code that is never loaded, and finding a mark in it that is
neither in a string nor in a comment.  Not here: which graphs (`hostile`, `hostile_graphs`).

Inductor writes a Python module.  The C++ of its kernels and wrappers stands in it as strings, so a
mark is looked for twice: in the Python, and in each string that is a program.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable
from typing import Any
from unittest import mock

_CPP_SILENT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
"""Comments, strings and characters of C++."""
_ERRORS = (tokenize.TokenError, SyntaxError, ValueError)


class _Generated(BaseException):
    """Ends a compile before the generated code is loaded: `except Exception` does not stop it."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code


def generated(compile_it: Callable[[], Any]) -> str | None:
    """Return what Inductor writes in a compile, and end the compile there; None if it wrote none.

    A compile that fails earlier, or in which Inductor has nothing to do, writes no code.
    """
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    def end(code: str) -> None:
        raise _Generated(code)

    off = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "compile_threads": 1}
    with mock.patch.object(GraphLowering, "save_output_code", end), config.patch(off):
        try:
            compile_it()
        except _Generated as ended:
            return ended.code
        except Exception:  # noqa: BLE001  any lowering may refuse its arguments
            return None
    return None


def marked_code(text: str, mark: str) -> list[str]:
    """Return the lines of a Python program with the mark outside its strings and comments.

    A program that is none has the mark in code wherever it stands.
    """
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if mark in token.string and token.type not in (tokenize.STRING, tokenize.COMMENT):
                found.append(token.line)
    except _ERRORS:
        found += [line for line in text.splitlines() if mark in line]
    return list(dict.fromkeys(found))


def marked_cpp(text: str, mark: str) -> list[str]:
    """Return the lines of a C++ program with the mark outside its strings and comments."""
    spoken = _CPP_SILENT.sub(" ", text)
    return list(dict.fromkeys(line for line in spoken.splitlines() if mark in line))


def marked_output_code(text: str, mark: str) -> list[str]:
    """Return the lines of Inductor's output code with the mark in Python or in C++ of it."""
    found = marked_code(text, mark)
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except _ERRORS:
        return found
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and "#include" in value:
            found += marked_cpp(value, mark)
    return list(dict.fromkeys(found))

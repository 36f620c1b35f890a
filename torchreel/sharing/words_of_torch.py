"""The words of torch itself: what a text may be made of without saying anything of a program.

Lives here: the names and the words of the installed torch, read from its compiled modules, and the
texts that its functions know as options. Nothing of torch is executed for it. Called by
`constructed` (which options leave) and `audit` (which words are nobody's).
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import NamedTuple

# Modules that define the functions of graphs: what they compare an argument with is an option.
_WITH_OPTIONS = (
    "functional.py", "nn/functional.py", "_decomp/decompositions.py", "_meta_registrations.py",
    "_refs/*.py", "_refs/*/*.py", "_higher_order_ops/*.py", "_inductor/kernel/flex/*.py",
    "_inductor/kernel/*.py", "_inductor/lowering.py", "nn/attention/flex_attention.py",
    "_prims_common/*.py", "fx/experimental/*.py", "_tensor.py", "amp/*.py",
)  # fmt: skip
# Options of operators written in C++, whose sources are not installed.
_OF_OPERATORS = frozenset({
    "none", "tanh", "floor", "trunc", "sum", "prod", "mean", "amax", "amin", "add", "multiply",
    "ij", "xy", "fro", "nuc", "inf", "reduced", "complete", "r", "L", "U", "left", "right",
    "backward", "forward", "ortho", "linear", "lower", "higher", "nearest", "midpoint", "constant",
    "reflect", "replicate", "circular", "zeros", "border", "bilinear", "bicubic", "valid", "same",
    "area", "trilinear", "nearest-exact", "cpu", "cuda", "meta", "half_to_even",
})  # fmt: skip
_LOOKUPS = ("get", "setdefault", "pop")
_OPTION = re.compile(r"[A-Za-z_][\w-]{0,39}")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MOST_BYTES = 8 << 20


class TorchWords(NamedTuple):
    """Names and words of torch's own code."""

    names: frozenset[str]
    """Names of modules, functions, variables and attributes, and texts that are one word."""
    words: frozenset[str]
    """TorchWords in texts, in lower case."""


def torch_folder() -> Path:
    """Return the folder of the installed torch; it is not imported."""
    found = importlib.util.find_spec("torch")
    origin = None if found is None else found.origin
    assert origin is not None, "torch is a dependency"
    return Path(origin).parent


@cache
def options() -> frozenset[str]:
    """Return the texts that torch's functions compare an argument with, have as a default or a key.

    A text of a program that is among them says no more than which of torch's ways it took.
    """
    found: set[str] = set(_OF_OPERATORS)
    folder = torch_folder()
    for pattern in _WITH_OPTIONS:
        for path in sorted(folder.glob(pattern)):
            found.update(_options_of(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(found)


def _options_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for held in _compared(node):
            for inner in ast.walk(held):
                text = inner.value if isinstance(inner, ast.Constant) else None
                if isinstance(text, str) and _OPTION.fullmatch(text):
                    yield text


def _compared(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the operands of comparisons, defaults, keys, and lookup arguments."""
    held: list[ast.expr | None] = []
    match node:
        case ast.Compare():
            held = [node.left, *node.comparators]
        case ast.arguments():
            held = [*node.defaults, *node.kw_defaults]
        case ast.Dict():
            held = [*node.keys]
        case ast.Subscript():
            held = [node.slice]
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in _LOOKUPS:
            held = [*node.args[:1]]
    yield from filter(None, held)


@cache
def words() -> TorchWords:
    """Return the names and words in all of torch's modules."""
    return _words_below(torch_folder())


def names_below(folder: Path) -> frozenset[str]:
    """Return the names, and the texts that are one word, in the modules of a folder."""
    return _words_below(folder).names


def _words_below(folder: Path) -> TorchWords:
    names: set[str] = set()
    said: set[str] = set()
    for path in sorted(folder.rglob("*.py")):
        names.update(path.relative_to(folder).with_suffix("").parts)
        code = _code_of(path)
        if code is not None:
            _collect(code, names, said)
    return TorchWords(frozenset(names), frozenset(said))


def _code_of(path: Path) -> CodeType | None:
    """Return the code of a module, from Python's cache where that is there."""
    try:
        cached = Path(importlib.util.cache_from_source(str(path)))
        if cached.exists() and cached.stat().st_mtime >= path.stat().st_mtime:
            # torch's own files, as Python itself would load them
            found = marshal.loads(cached.read_bytes()[16:])
            if isinstance(found, CodeType):
                return found
        if path.stat().st_size > _MOST_BYTES:
            return None
        return compile(path.read_text(encoding="utf-8"), "torch", "exec", dont_inherit=True)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError):
        return None


def _collect(code: CodeType, names: set[str], said: set[str]) -> None:
    names.update(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    names.add(code.co_name)
    for constant in code.co_consts:
        _collect_constant(constant, names, said)


def _collect_constant(constant: object, names: set[str], said: set[str]) -> None:
    if isinstance(constant, CodeType):
        _collect(constant, names, said)
    elif isinstance(constant, str):
        said.update(word.lower() for word in _WORD.findall(constant))
        if _NAME.fullmatch(constant):
            names.update(constant.split("."))
    elif isinstance(constant, (tuple, frozenset)):
        for item in constant:
            _collect_constant(item, names, said)

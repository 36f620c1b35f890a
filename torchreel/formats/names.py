"""Checks the names of a graph: torch writes them into the programs that it generates and runs.

Lives here: the rules for text of a store that ends up there.  Not here: what a graph may call
(`targets`).  Called by every decoder of this package that makes such an object.

FX writes the names of inputs, attributes and keywords into Python; Inductor writes symbols and the
keys of unbacked bindings into Python and C++, and names out of the metadata into comments of both.
A name with a line break in it would be a program of whoever wrote the store.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping

import torch

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json

_NAME = re.compile(r"\w+")
_QUOTES = ('"""', "'''")


def check_name(name: str, what: str = "name") -> str:
    """Return the name itself: letters, digits and underscores.

    Raises `UnsupportedError` otherwise.
    """
    if not _NAME.fullmatch(name):
        raise UnsupportedError(f"a {what} is made of letters, digits and _, found {name!r:.80}")
    return name


def check_identifier(name: str, what: str = "name") -> str:
    """Return `name` where Python's code can hold it as the name of a variable.

    Raises `UnsupportedError` otherwise.
    """
    if check_name(name, what).isidentifier() and not keyword.iskeyword(name):
        return name
    raise UnsupportedError(f"a {what} of a graph is a variable in its code, found {name!r:.80}")


def check_path(path: str, what: str = "path of attributes") -> str:
    """Return names with dots between them.  Raises `UnsupportedError` otherwise."""
    for name in path.split("."):
        check_name(name, what)
    return path


def check_member(path: str) -> str:
    """Return the path of an attribute of a GraphModule that hides none that every module has."""
    for name in check_path(path).split("."):
        if hasattr(torch.nn.Module, name):
            raise UnsupportedError(f"a graph has no attribute {name!r}: every module has one")
    return path


def check_comment(data: Json) -> None:
    """Refuse a tree with text that would not stay within one line of a comment or a string.

    Raises `UnsupportedError` naming the text.
    """
    if isinstance(data, str):
        if not data.isprintable() or any(quotes in data for quotes in _QUOTES):
            raise UnsupportedError(f"a text that does not fit into a comment: {data!r:.80}")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            check_comment(key)
            check_comment(value)
    elif isinstance(data, (list, tuple)):
        for item in data:
            check_comment(item)

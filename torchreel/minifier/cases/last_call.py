"""The call that ends a program: of a compiled function, or of `torch.export.export`.

Lives here: finding it, and the same call in eager mode.  Not here: how it is edited
(`source.passes`). Called by all that run, write or edit programs.
"""

from __future__ import annotations

import ast

from torchreel.errors import UnsupportedError

EXPORT = "torch.export.export"
_MODULE, _ARGUMENTS, _KEYWORDS = "mod", "args", "kwargs"
"""The first parameters of `torch.export.export`."""


def last_call(tree: ast.Module) -> ast.Call:
    """Return the call that ends a program.  Raises `UnsupportedError` where it ends otherwise."""
    body = tree.body
    while body and isinstance(body[-1], ast.With):
        body = body[-1].body
    if body and isinstance(body[-1], ast.Expr) and isinstance(body[-1].value, ast.Call):
        in_eager_mode(body[-1].value)
        return body[-1].value
    raise UnsupportedError("the program does not end with a call")


def is_export(call: ast.Call) -> bool:
    """Return True for a call of `torch.export.export`."""
    return ast.unparse(call.func) == EXPORT


def in_eager_mode(call: ast.Call) -> ast.Call:
    """Return the same without torch.compile or torch.export: the function or the module is called.

    Raises `UnsupportedError` for any other call.
    """
    if not is_export(call):
        return ast.Call(wrapped(call), call.args, call.keywords)
    given = dict(zip((_MODULE, _ARGUMENTS, _KEYWORDS), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    if _MODULE not in given:
        raise UnsupportedError("the program exports no module")
    arguments = given.get(_ARGUMENTS, ast.Tuple([], ast.Load()))
    keywords = [ast.keyword(None, given[_KEYWORDS])] if _KEYWORDS in given else []
    return ast.Call(given[_MODULE], [ast.Starred(arguments, ast.Load())], keywords)


def wrapped(call: ast.Call) -> ast.expr:
    """Return F of `torch.compile(F, ...)(...)`.  Raises `UnsupportedError` for any other call."""
    inner = call.func
    if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "torch.compile" and inner.args:
        return inner.args[0]
    raise UnsupportedError("the program ends with no call of torch.compile or torch.export")

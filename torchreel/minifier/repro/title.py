"""The title of an issue: a failure in one line, and what is searched for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.side_effects import base_name
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.store.failures.signature import Signature

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{,60}")
_FUNCTION = re.compile(r"(?:torch|F)(?:\.[A-Za-z_][A-Za-z0-9_]{,60}){1,5}")
_MOST_NAMES = 4
"""A title names as many operators as it calls, if they are no more than these."""


def title(signature: Signature, case: AnyCase | None = None) -> str:
    """Return a failure in one line, as the title of an issue; `case` shows what is compiled."""
    where = f"in stage {signature.stage}" + (
        f" ({signature.partition})" if signature.partition else ""
    )
    match signature.failure_class:
        case "crash":
            return f"{signature.signal or 'crash'} {where}"
        case "hang":
            return f"torch.compile hangs {where}"
        case "memory":
            return f"torch.compile runs out of memory {where}"
        case "predicate":
            return f"torch.compile: {signature.message}"
        case "script":
            return f"torch.compile: what '{signature.message}' looks for"
        case "wrong_result" if isinstance(case, SourceCase) and not case.ends_with_dynamo:
            what = f"A program does something else when it is compiled ({signature.message})"
            return what + _calls(case)
        case "wrong_result" if signature.stage == "dynamo":
            return (
                f"Dynamo traces a program into one that does something else ({signature.message})"
                f"{_calls(case)}"
            )
        case "wrong_result":
            return f"torch.compile computes a wrong result ({signature.message}){_calls(case)}"
    message = signature.message.partition("\n")[0]
    return f"{'/'.join(signature.exception_types)} {where}: {message}".rstrip(": ")


def _calls(case: AnyCase | None) -> str:
    """Return what a small case calls, which is what one searches for; '' for a larger one.

    A name of a store is text, and is left out where it could be more than a name.
    """
    if isinstance(case, SourceCase):
        names, form = dict.fromkeys(_functions_of_torch(case.tree)), _FUNCTION
    elif isinstance(case, Case):
        names = dict.fromkeys(base_name(node) for node in case.graph.nodes if node.is_call)
        form = _NAME
    else:
        return ""
    if not 0 < len(names) <= _MOST_NAMES or not all(map(form.fullmatch, names)):
        return ""
    return f": {', '.join(names)}"


def _functions_of_torch(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of torch that a program calls; not those that make or compare inputs."""
    for node in ast.walk(tree):
        name = _dotted(node.func) if isinstance(node, ast.Call) else ""
        first, _, rest = name.partition(".")
        if first in ("torch", "F") and rest and not _IS_AROUND.match(rest):
            yield name


def _dotted(node: ast.expr) -> str:
    """Return a name with its attributes; '' for an attribute of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


_IS_AROUND = re.compile(
    r"(?:compile|manual_seed|set_\w+|no_grad|tensor|as_tensor|from_numpy|zeros|ones|full|empty|eye"
    r"|arange|linspace|rand\w*)$|(?:compiler|testing|_dynamo|_inductor|_functorch|library)\."
)
"""Functions of torch around what is compiled."""


def headline(signature: Signature, message: str, case: AnyCase | None = None) -> str:
    """Return the title with the message of an exception as it was raised, where that says more."""
    telling = signature.failure_class == "exception" and message
    if not telling or signature.exception_types == ("CppCompileError",):
        return title(signature, case)
    return f"{message} (stage {signature.stage})"

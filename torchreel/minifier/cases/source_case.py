"""A program as a case: its text is all there is.

The text is a complete script. It makes what it needs (classes, functions, modules, settings) and
ends with one call, which may stand in `with` blocks: `torch.compile(FUNCTION, ...)(ARGUMENTS)`, or
`torch.export.export(MODULE, (ARGUMENTS), ...)`. With FUNCTION or MODULE called instead, that is the
program in eager mode. Since settings and the arguments of these calls are text as well, one way of
editing is enough for all of it.

A whole program, as a person wrote it, compiles where it likes and ends with anything. In eager mode
torch.compile does nothing in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.descriptions import integer
from torchreel.minifier.cases.last_call import is_export, last_call
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of
from torchreel.store.documents.kinds import list_only

KIND = "source"
ANYTHING = "*"
"""The observation of a program that is searched for any difference."""
OBSERVES = "observes"
"""The name under which a run reports where it found one."""

RESULT, ARGUMENTS, KEYWORDS = "result", "arguments", "keywords"
"""The names of the result and the arguments of the last call in an observation."""

CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable that says where torch keeps compiled code."""

RANDOM = re.compile(r"rand|dropout|bernoulli|normal|multinomial|uniform|exponential|seed")
"""The operators that draw random numbers, by a part of their names."""

_NOTHING = """\
import torch

def fn(x):
    return x

torch.compile(fn)(torch.ones(2))
"""
_NOTHING_EXPORTED = """\
import torch

class Model(torch.nn.Module):

    def forward(self, x):
        return x

torch.export.export(Model(), (torch.ones(2),))
"""


def _is_compile(node: ast.AST) -> bool:
    """Return True if an expression is `torch.compile`, or `compile` of a module."""
    if isinstance(node, ast.Attribute):
        return node.attr == "compile" and ast.unparse(node.value) != "re"
    return isinstance(node, ast.Name) and node.id == "compile"


def _names_eager_backend(call: ast.Call) -> bool:
    given = {word.arg: word.value for word in call.keywords}
    backend = given.get("backend")
    return isinstance(backend, ast.Constant) and backend.value == "eager"


@dataclass(frozen=True)
class SourceCase:
    """A program that Dynamo fails to trace, or traces wrongly, or that torch.export fails on.

    See `kinds.AnyCase` for what it has to have.
    """

    text: str
    imports: tuple[str, ...] = ()
    repeats: int = 1
    eager: bool = True
    observes: str = ""
    """The expression that is to differ from eager mode; empty where the program has to fail."""
    whole: bool = False
    """True for a program as it was recorded; False for one that was made from a frame."""
    caches: bool = False
    """True where compiled code comes from caches too, which are empty when a run begins."""

    kind = KIND
    is_code = True
    is_part = False
    unit = "statement"

    @property
    def summary(self) -> str:
        """Return in a few words what it is."""
        if self.whole and self.caches:
            return "the recorded program itself, with the caches of compiled code"
        if self.whole:
            return "the recorded program itself"
        return "the program made from the recorded frame"

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree.  Raises `UnsupportedError` where the text is no program."""
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnsupportedError(f"the program can't be parsed: {error}") from error

    @property
    def expression(self) -> ast.expr:
        """Return the text as one expression.  Raises `UnsupportedError` where it is none."""
        body = self.tree.body
        if len(body) != 1 or not isinstance(body[0], ast.Expr):
            raise UnsupportedError("what the program observes is no expression")
        return body[0].value

    @property
    def exports(self) -> bool:
        """Return True if it was made to end with a call of torch.export."""
        return not self.whole and is_export(last_call(self.tree))

    @property
    def ends_with_dynamo(self) -> bool:
        """Return True if nothing is compiled after Dynamo: each compile names the eager backend."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        eager = {id(call.func) for call in calls if _names_eager_backend(call)}
        compiles = {id(node) for node in ast.walk(self.tree) if _is_compile(node)}
        return bool(compiles) and compiles <= eager

    @property
    def call_nodes(self) -> int:
        """Count the statements, the imports and nested ones included."""
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.tree))

    @property
    def total_call_nodes(self) -> int:
        """Return the same: nested statements count anyway."""
        return self.call_nodes

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the document."""
        return digest_of(self.to_bytes())

    def with_text(self, text: str) -> SourceCase:
        """Return the same with another program."""
        return replace(self, text=text)

    def repeating(self, times: int) -> SourceCase:
        """Return the case with another `repeats`."""
        return replace(self, repeats=times)

    def refreshed(self, values: Mapping[str, Json]) -> SourceCase:
        """Return the case itself: nothing in a text is derived from the rest."""
        return self

    def trivial(self) -> SourceCase | None:
        """Return a program that returns its input; None for itself."""
        nothing = _NOTHING_EXPORTED if self.exports else _NOTHING
        return self.with_text(nothing) if self.text != nothing else None

    def to_json(self) -> dict[str, Json]:
        """Return it as data."""
        return {
            "kind": KIND,
            "text": self.text,
            "imports": list(self.imports),
            "repeats": self.repeats,
            "eager": self.eager,
            **({"observes": self.observes} if self.observes else {}),
            **({"whole": True} if self.whole else {}),
            **({"caches": True} if self.caches else {}),
        }

    @classmethod
    def from_json(cls, data: Json) -> SourceCase:
        """Read what `to_json` gave.  Raises `UnsupportedError` when it is malformed."""
        if not isinstance(data, Mapping) or not isinstance(data.get("text"), str):
            raise UnsupportedError("the document is not the program that it says it is")
        names = tuple(map(str, list_only(data.get("imports"))))
        found = cls(
            str(data["text"]),
            names,
            integer(data, "repeats", 1),
            bool(data.get("eager", 1)),
            str(data.get("observes", "")),
            data.get("whole") is True,
            data.get("caches") is True,
        )
        found.tree  # noqa: B018
        if found.observes not in ("", ANYTHING):
            found.with_text(found.observes).expression  # noqa: B018
        return found

    def with_imports(self, imports: tuple[str, ...]) -> SourceCase:
        """Return the case with other modules to import."""
        return replace(self, imports=imports)

    def to_bytes(self) -> bytes:
        """Return the document that the store keeps."""
        return canonical_json(self.to_json())

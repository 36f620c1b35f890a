"""The recorded program itself: a start of reductions where nothing else shows the failure.

Some failures need more than a graph or a frame: a second call, a backward outside of what was
compiled, an operator of the program's own, an input that no description holds. The program has all
of it, if its file and the modules beside it are still as they were. Called by `minify` and
`accuracy`; the text is of this machine, and is read and run with `MinifyOptions.trust` only.
"""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.source_case import ANYTHING, SourceCase
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.source.own_modules import with_own_modules
from torchreel.replay.frame_verdicts import is_export
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.kinds import list_only
from torchreel.store.records import Compile, Recording

_LARGEST = 1 << 20
"""Bytes: a longer file is no program that a person wrote."""
_PLAIN_OPTION = re.compile("-([bBdEIOqsSuv]+|[bBdEIOqsSuv]*[WX].+)")
"""Options of Python's, with their values, that change nothing of what a program means."""
_OPTION_WITH_VALUE = re.compile("-[bBdEIOqsSuv]*[WX]")
"""The same with the value in the next word: warnings, options of the implementation."""
_COMPARING = ("assert_close", "assert_allclose", "assert_equal")
"""Functions that raise where their first two arguments differ."""


def recorded_program(store: Store, compile: Compile, options: MinifyOptions) -> list[SourceCase]:
    """Return the program of a compile's recording, without and with its `try` statements.

    Each also with the caches of compiled code, which the others do not use.  Eager mode does not
    judge one that exports: it makes no difference to torch.export.
    Raises `UnsupportedError` where it is not to be had.
    """
    tree = _parsed(store, compile)
    with _writable():
        texts = (_text(_spliced(_without_try(tree))), _text(tree))
    exports = is_export(compile) or queries.is_decomposition(store, compile)
    return _without_and_with_caches(
        SourceCase(t, options.imports, whole=True, eager=not exports) for t in dict.fromkeys(texts)
    )


def observed_program(store: Store, compile: Compile, options: MinifyOptions) -> list[SourceCase]:
    """Return the program with a name for each result that it shows, checks or drops.

    Without and with its `try` statements: what eager mode raises may be the right result. Raises
    `UnsupportedError` where it is not to be had.
    """
    tree = _parsed(store, compile)
    with _writable():
        texts = [_text(_Named().visit(_spliced(one))) for one in (_without_try(tree), tree)]
    return _without_and_with_caches(
        SourceCase(t, options.imports, whole=True, observes=ANYTHING) for t in dict.fromkeys(texts)
    )


def _without_and_with_caches(cases: Iterable[SourceCase]) -> list[SourceCase]:
    """Return the cases, and then the same with caches of compiled code.

    These come last: a failure that needs them is rare, and each run has to compile all anew.
    """
    without = list(cases)
    filling = [case for case in without if not case.ends_with_dynamo]
    return [*without, *(replace(case, caches=True) for case in filling)]


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise UnsupportedError("the program is nested too deep") from None
    except ValueError as error:  # before Python 3.12: a backslash in an f-string's expression
        raise UnsupportedError(f"the program can't be written ({error})") from error


def _parsed(store: Store, compile: Compile) -> ast.Module:
    recording = queries.recording(store, compile.recording_id)
    path, arguments = _command(recording)
    program = _file(path, recording)

    def beside(name: str) -> ast.Module | None:
        module = path.parent.joinpath(*name.split(".")).with_suffix(".py")
        return _file(module, recording) if module.is_file() else None

    with _writable():
        tree = with_own_modules(program, beside)
    return _with_arguments(tree, [path.name, *arguments]) if arguments else tree


def _file(path: Path, recording: Recording) -> ast.Module:
    """Return a file of the program, parsed.

    Raises `UnsupportedError` where it is not what it was.
    """
    try:
        changed, text = read_program(path)
    except (OSError, ValueError) as error:  # a path of a store may be none
        raise UnsupportedError(f"the program {str(path)!r} can't be read: {error}") from error
    if changed > recording.started_ns:
        raise UnsupportedError(f"the program {path} has changed since it was recorded")
    if len(text) > _LARGEST:
        raise UnsupportedError(f"the program {path} is longer than {_LARGEST} bytes")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnsupportedError(f"the program {path} can't be parsed: {error}") from error


def _with_arguments(tree: ast.Module, words: list[str]) -> ast.Module:
    """Return the program with its command line, which a script would not have."""
    start = 0
    while start < len(tree.body) and _comes_first(tree.body[start]):
        start += 1
    given = ast.parse(f"import sys\nsys.argv = {words!r}").body
    return ast.Module([*tree.body[:start], *given, *tree.body[start:]], [])


def _comes_first(node: ast.stmt) -> bool:
    """Return True for a docstring, and for an import that may only stand at the beginning."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def read_program(path: Path) -> tuple[int, bytes]:
    """Return when a file was changed, and its beginning. Raises OSError for what is no file."""
    # To open a pipe waits for its other end, unless it is asked not to.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no regular file")
        return status.st_mtime_ns, file.read(_LARGEST + 1)


def _command(recording: Recording) -> tuple[Path, list[str]]:
    """Return the file that a recording ran, and its arguments."""
    words = [str(word) for word in list_only(recording.argv)]
    if words and Path(words[0]).name.startswith("python"):
        words = _without_options(words[1:])
    if not words or not words[0].endswith(".py"):
        raise UnsupportedError("the recording is not of a file of Python")
    if "<redacted>" in "".join(words):
        raise UnsupportedError("an argument of the program was redacted")
    return Path(os.path.join(recording.cwd, words[0])), words[1:]


def _without_options(words: list[str]) -> list[str]:
    """Return a command line of Python's from the file on; as it is after an option that matters."""
    while words:
        if _PLAIN_OPTION.fullmatch(words[0]):
            words = words[1:]
        elif _OPTION_WITH_VALUE.fullmatch(words[0]):
            words = words[2:]
        else:
            break
    return words


def _text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _WithoutTry(ast.NodeTransformer):
    """Puts what a `try` tries in its place, and the body of `if __name__ == "__main__"`."""

    def visit_Try(self, node: ast.Try) -> Sequence[ast.stmt]:
        """Return the statements that are run where nothing is raised."""
        self.generic_visit(node)
        return [*node.body, *node.orelse, *node.finalbody]

    def visit_If(self, node: ast.If) -> ast.stmt | Sequence[ast.stmt]:
        """Return the body of what runs in every program."""
        self.generic_visit(node)
        return node.body if ast.unparse(node.test) == "__name__ == '__main__'" else node


def _without_try(tree: ast.Module) -> ast.Module:
    found = _WithoutTry().visit(ast.parse(ast.unparse(tree)))
    assert isinstance(found, ast.Module), "it was one"
    return found


def _spliced(tree: ast.Module) -> ast.Module:
    """Return the program with the body of `main()` where it is called, if that is once."""
    uses = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    mains = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and _is_spliced(node) and uses.count(node.name) == 1
    }
    calls = {_called_without_arguments(node) for node in tree.body}
    body: list[ast.stmt] = []
    for node in tree.body:
        called = _called_without_arguments(node)
        if not (isinstance(node, ast.FunctionDef) and node.name in mains.keys() & calls):
            body += mains[called].body if called in mains else [node]
    return ast.Module(body, [])


_OF_FUNCTIONS = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)


def _is_spliced(node: ast.FunctionDef) -> bool:
    inner = [found for item in node.body for found in ast.walk(item)]
    stays = any(isinstance(found, _OF_FUNCTIONS) for found in inner)
    return node.name == "main" and not stays and not ast.unparse(node.args)


def _called_without_arguments(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[], keywords=[])):
            return name
    return ""


class _Named(ast.NodeTransformer):
    """Gives names to what statements outside of functions check, show or leave."""

    def __init__(self) -> None:
        self._count = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Return the function: what is inside runs where it is called."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """Return the class as it is."""
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Return an assignment of what is tested."""
        return self._assigned(node.test)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Return an assignment of what is shown, compared or dropped."""
        match node.value:
            case ast.Call(func=ast.Name(id="print"), args=args):
                given = [arg for arg in args if not isinstance(arg, (ast.Constant, ast.Starred))]
                return self._assigned(ast.Tuple(given, ast.Load())) if given else node
            case ast.Call(func=ast.Attribute(attr=name), args=[one, other, *_]):
                if name in _COMPARING:
                    return self._assigned(ast.Tuple([one, other], ast.Load()))
            case ast.Constant() | ast.Await() | ast.Yield():
                return node
        return self._assigned(node.value)

    def visit_If(self, node: ast.If) -> ast.stmt | Sequence[ast.stmt]:
        """Return the statement, with its test assigned before."""
        self.generic_visit(node)
        named = self._assigned(node.test)
        node.test = ast.Name(named.targets[0].id, ast.Load())  # type: ignore[attr-defined]
        return [named, node]

    def _assigned(self, value: ast.expr) -> ast.Assign:
        self._count += 1
        return ast.Assign([ast.Name(f"seen{self._count}", ast.Store())], value, lineno=1)

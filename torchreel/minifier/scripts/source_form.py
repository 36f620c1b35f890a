"""A program as a repro: the text with its header, laid out as people lay it out.

Where nothing fails, but something comes out differently, it is run twice and compared.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import ascii_strings
from torchreel.minifier.cases.last_call import wrapped
from torchreel.minifier.cases.source_case import ARGUMENTS, CACHE_FOLDER, RANDOM, RESULT, SourceCase
from torchreel.minifier.scripts.script import Script, comments, precautions
from torchreel.minifier.scripts.validation.scripts import check_program
from torchreel.store.failures.signature import Signature


def source_form(case: SourceCase, signature: Signature, header: Sequence[str]) -> Script:
    """Return the program, ready to be run by itself."""
    lines = [*precautions(signature), *_caches(case)]
    heads, rest = _parts(case)
    return _script("source", header, _with_imports(lines, heads), [*_parsed(lines), *rest])


_EMPTY_CACHES = f'os.environ["{CACHE_FOLDER}"] = tempfile.mkdtemp()'


def _caches(case: SourceCase) -> list[str]:
    """Return the lines that empty the caches of compiled code, if the program needs these."""
    return [_EMPTY_CACHES] if case.caches else []


def _with_imports(lines: Sequence[str], heads: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the imports of a program, with those that lines before it need."""
    futures = [node for node in heads if _is_future(node)]
    others = [node for node in heads if not _is_future(node)]
    own = {name for line in lines for name in _names(line) & _MODULES}
    return [*futures, *_parsed([f"import {name}" for name in sorted(own)]), *others]


_MODULES = frozenset({"faulthandler", "os", "resource", "tempfile"})


def _parsed(lines: Sequence[str]) -> list[ast.stmt]:
    return ast.parse("\n".join(lines)).body


def comparing_forms(case: SourceCase, header: Sequence[str]) -> Iterator[Script]:
    """Yield scripts that compare the observed values of a program, eager and compiled.

    The first call the function twice, where that shows the difference; the others run the whole
    program twice. Its names are those of one function; then its classes are global, so that both
    runs make objects of the same ones; and where that is something else to the program, all names.
    """
    heads, rest = _parts(case)
    lines = _caches(case)
    first, heads = _parsed(lines), _with_imports(lines, _with_torch(heads))
    called_twice = _called_twice(case, rest)
    bodies = [("function", called_twice)] if called_twice else []
    bodies.append(("program", _run_twice(case, rest, rest)))
    apart, others = _definitions_apart(rest)
    if any(isinstance(node, ast.ClassDef) for node in apart):
        run = _run_twice(case, others, rest)
        bodies.append(("program beside its classes", [*apart, *run]))
    bodies.append(("global program", _run_twice(case, rest, rest, with_global=True)))
    for form, body in bodies:
        names = _own_names(rest)
        for how in _COMPARISONS:
            end = _Renamed(names).visit(ast.parse(how))
            yield _script(form, header, heads, [*first, *body, *end.body])


def _script(
    form: str, header: Sequence[str], heads: Sequence[ast.stmt], body: Sequence[ast.stmt]
) -> Script:
    """Return a program as text.

    Raises `UnsupportedError` for one with characters that nobody sees.
    """
    program = ast.fix_missing_locations(ast.Module([*heads, *body], []))
    try:
        lines = [*map(ast.unparse, heads), "", *_laid_out(body)]
    except ValueError as error:  # before Python 3.12: a backslash in an f-string's expression
        raise UnsupportedError(f"the program can't be written ({error})") from error
    code = ascii_strings("\n".join(lines) + "\n")
    text = "\n".join([*comments(header), "", code])
    return Script(form, check_program(text, program))


_COMPARISONS = (
    "torch.testing.assert_close(actual, expected, equal_nan=True)",
    "assert actual == expected, f'{expected} in eager mode, {actual} compiled'",
)


def _parts(case: SourceCase) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the imports with which a program begins, and the rest.

    What stands before a later import may be needed for it. One of all names can't be in a function.
    """
    body = copy.deepcopy(case.tree.body)
    begins = list(takewhile(lambda node: _is_import(node) or _is_text(node), body))
    heads = [n for n in body if (_is_import(n) and n in begins) or _is_of_all_names(n)]
    return heads, [node for node in body if node not in heads]


def _with_torch(heads: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """Return the imports, with that of torch, which both runs need: it may come later."""
    names = {name for node in heads for name in _bound(node)}
    return heads if "torch" in names else [*heads, *ast.parse("import torch").body]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_of_all_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _called_twice(case: SourceCase, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements that call the function as it is, and compiled; [] if that is not enough."""
    end = body[-1]
    if case.whole or _names(case.observes) != {RESULT} or _is_random(body):
        return []
    if not isinstance(end, ast.Expr):
        return []
    call = copy.deepcopy(end.value)
    assert isinstance(call, ast.Call), "a program ends with a call"
    call.func = wrapped(call)
    own = _own_names(body)
    calls = {own["expected"]: call, own["actual"]: end.value}
    return [*body[:-1], *(_assigned(name, _of(case, value)) for name, value in calls.items())]


def _of(case: SourceCase, value: ast.expr) -> ast.expr:
    """Return the expression that observes a result."""
    tree = ast.parse(case.observes, mode="eval").body
    return _Replaced({RESULT: value}).visit(tree)  # type: ignore[no-any-return]


def _run_twice(
    case: SourceCase,
    body: Sequence[ast.stmt],
    program: Sequence[ast.stmt],
    *,
    with_global: bool = False,
) -> list[ast.stmt]:
    """Return a part of a program as a function, which makes it anew; its names may stay global."""
    lines = list(body) if case.whole else _with_observed_call(case, body)
    # A whole program may draw numbers where nothing says so: a new layer does, for its weights.
    if case.whole or _is_random(program):
        lines = [*ast.parse("torch.manual_seed(0)").body, *lines]
    # An annotated name can't be global.
    lines = [_WithoutAnnotations().visit(node) for node in lines]
    known = [name for node in body for name in _bound(node)]
    if known and with_global:
        lines = [ast.Global(list(dict.fromkeys(known))), *lines]
    lines.append(ast.Return(ast.parse(case.observes, mode="eval").body))
    names = _own_names(program)
    run = ast.parse(f"def {names['run']}():\n    pass").body[0]
    assert isinstance(run, ast.FunctionDef), "it is one"
    run.body = lines
    return [run, *_Renamed(names).visit(ast.parse(_TWICE)).body]


def _definitions_apart(
    body: Sequence[ast.stmt],
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the classes and functions that need nothing of a program but one another; and the
    rest of it.
    """
    apart = [node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    while True:
        others = [node for node in body if node not in apart]
        needed = {name for node in others for name in _bound(node)}
        kept = [node for node in apart if not _names(ast.unparse(node)) & needed]
        if len(kept) == len(apart):
            return list(apart), others
        apart = kept


def _own_names(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the names that a script has around a program, which are none of the program's.

    A second run would give a program's `expected` another value, and compare that.
    """
    taken = {node.id for item in body for node in ast.walk(item) if isinstance(node, ast.Name)}
    taken |= {name for item in body for name in _bound(item)}
    found = {}
    for name in ("run", "expected", "actual"):
        free = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
        found[name] = next(one for one in free if one not in taken)
    return found


class _Renamed(ast.NodeTransformer):
    """Puts other names in the place of names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Return the other name."""
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _with_observed_call(case: SourceCase, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a program with names for the result of the call that ends it."""
    end: ast.stmt = body[-1]
    around: list[ast.stmt] = []
    while isinstance(end, ast.With):
        around, end = end.body, end.body[-1]
    assert isinstance(end, ast.Expr), "a program ends with a call"
    assert isinstance(end.value, ast.Call), "a program ends with a call"
    call, names, lines = end.value, _names(case.observes), list(body)
    last: list[ast.stmt] = [_assigned(RESULT, call)]
    if ARGUMENTS in names:
        given = ast.Tuple(call.args, ast.Load())
        call.args = [ast.Starred(ast.Name(ARGUMENTS, ast.Load()), ast.Load())]
        last = [_assigned(ARGUMENTS, given), *last]
    if around:
        around[-1:] = last
    else:
        lines[-1:] = last
    return lines


_TWICE = """\
with torch.compiler.set_stance("force_eager"):
    expected = run()
actual = run()
"""


def _is_random(body: Sequence[ast.stmt]) -> bool:
    return any(RANDOM.search(ast.unparse(node)) for node in body)


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.fix_missing_locations(ast.Assign([ast.Name(name, ast.Store())], value, lineno=1))


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a program binds, in the order of the text."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.alias) and inner.name != "*":
            yield inner.asname or inner.name.partition(".")[0]


class _WithoutAnnotations(ast.NodeTransformer):
    """Leaves out the annotations of variables outside of functions and classes."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Return the function as it is."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        """Return the function as it is."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """Return the class as it is."""
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Return a plain assignment; `pass` for a name without a value."""
        if node.value is None:
            return ast.Pass()
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Replaced(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the expression that replaces the name; the name itself if there is none."""
        return self._values.get(node.id, node)


def _laid_out(body: Sequence[ast.stmt]) -> list[str]:
    """Return statements with two blank lines around definitions."""
    lines: list[str] = []
    before: ast.stmt | None = None
    for node in body:
        if any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) for n in (node, before)):
            lines += [""] * (2 if before is not None else 1)
        lines += ast.unparse(node).splitlines()
        before = node
    return lines

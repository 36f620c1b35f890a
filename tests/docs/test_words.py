"""The words of the code: docstrings that begin with a verb or a noun, class names used once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.docs.pages import ROOT

MODULES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "torchreel").rglob("*.py"))
}
QUESTION = re.compile(r"(What|Whether|How|Which|Where|Why|Who|When)\b")
RETIRED = re.compile(r"\btapes?\b", re.IGNORECASE)


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                yield line, text.strip()


def test_docstrings_do_not_begin_as_questions() -> None:
    """Write 'Return True if', 'The number of' or 'Compare', not 'Whether', 'How many' or 'What'."""
    found = [
        f"{name}:{line}: {text[:60]}"
        for name, module in MODULES.items()
        for line, text in _docstrings(module)
        if QUESTION.match(text)
    ]
    assert found == []


def test_no_two_public_classes_share_a_name() -> None:
    names = Counter(
        node.name
        for module in MODULES.values()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_retired_words_stay_away() -> None:
    """The glossary has one word for each thing; a tape is an event log."""
    found = [name for name in MODULES if RETIRED.search((ROOT / name).read_text(encoding="utf-8"))]
    assert found == []


def test_no_module_refers_to_a_document_that_is_not_here() -> None:
    """A reader of the repository has no other text than the repository."""
    absent = re.compile(r"\bthe design's\b|\b(DESIGN|USERS|PEERS|FACTS|NEXT|STYLE)\.md\b")
    found = [name for name in MODULES if absent.search((ROOT / name).read_text(encoding="utf-8"))]
    assert found == []


_PACKAGES = tuple(
    sorted(path.name for path in (ROOT / "torchreel").iterdir() if (path / "__init__.py").exists())
)
_PLACE = re.compile(rf"`(?:torchreel\.)?((?:{'|'.join(_PACKAGES)})(?:\.[a-z_]+)+)`")


def test_the_modules_that_docstrings_name_are_there() -> None:
    """`store.files.locks` is a module, or what a module defines, wherever a docstring says so."""
    modules = {
        re.sub(r"(/__init__)?\.py$", "", path).removeprefix("torchreel/"): module
        for path, module in MODULES.items()
    }
    named = [
        (path, place)
        for path, module in MODULES.items()
        for _, text in _docstrings(module)
        for place in _PLACE.findall(text)
    ]
    assert len(named) > 60
    assert [(path, place) for path, place in named if not _is_there(place, modules)] == []


def _is_there(place: str, modules: dict[str, ast.Module]) -> bool:
    package, _, name = place.rpartition(".")
    defined = modules.get(package.replace(".", "/"))
    return place.replace(".", "/") in modules or (
        defined is not None and any(name in names for names in map(_names, defined.body))
    )


def _names(statement: ast.stmt) -> set[str]:
    return {
        getattr(node, "name", "") or getattr(node, "id", "") or getattr(node, "asname", "") or ""
        for node in ast.walk(statement)
    }

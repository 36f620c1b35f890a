"""A program as a repro: the text with its header, laid out as people lay it out."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchreel.minifier.export.script import Script, comments, precautions
from torchreel.minifier.source.case import SourceCase
from torchreel.store.signature import Signature


def source_form(case: SourceCase, signature: Signature, header: Sequence[str]) -> Script:
    """The program, ready to be run by itself."""
    first = precautions(signature)
    imports = ["import faulthandler"] if first else []
    body = case.tree.body
    heads = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = [node for node in body if node not in heads]
    lines = [*comments(header), "", *imports, *map(ast.unparse, heads), "", *first]
    return Script("source", "\n".join([*lines, *_laid_out(rest)]) + "\n")


def _laid_out(body: Sequence[ast.stmt]) -> list[str]:
    """Statements with two blank lines around definitions."""
    lines: list[str] = []
    before: ast.stmt | None = None
    for node in body:
        if any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) for n in (node, before)):
            lines += [""] * (2 if before is not None else 1)
        lines += ast.unparse(node).splitlines()
        before = node
    return lines

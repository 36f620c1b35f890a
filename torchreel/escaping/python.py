"""Text in a Python program: comments, string literals and names.

Lives here: one function per context, none of which can add a line or a name to a program. Not here:
which functions a program may call (`minifier.scripts.validation`). Called by the export.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import textwrap
import tokenize

from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import is_visible, visible

_WIDTH = 96
# A comment in the first two lines may say how the file is encoded (PEP 263), and then a harmless
# line may be a program: '\n' ends a line in the encoding 'unicode_escape'.
_ENCODING = re.compile(r"coding(?=[:=])")
# What editors read as settings: '-*- eval: ... -*-', ' vim: ...'.
_EMACS = re.compile(r"-\*-")
_VIM = re.compile(r"(?<!\S)(vi|vim|ex)(?=[<=>]?\d*:)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def comment_lines(text: object) -> list[str]:
    """Return a text as lines of comment; one empty comment for an empty text."""
    line = _ENCODING.sub("coding ", visible(text))
    line = _VIM.sub(r"\1 ", _EMACS.sub("- * -", line))
    # Once more: a mark may have lost the letter that it stood on to the line before.
    return [f"# {visible(part)}" for part in textwrap.wrap(line, _WIDTH)] or ["#"]


def literal(text: str) -> str:
    """Return a string literal in ASCII; in double quotes where nothing has to be escaped."""
    plain = text.isascii() and text.isprintable() and not set('"\\') & set(text)
    return f'"{text}"' if plain else ascii(text)


def identifier(text: str) -> str:
    """Return a name of ASCII: Python takes letters that look like others for one name with those.

    Raises `UnsupportedError` for what is none, and for a keyword.
    """
    if not is_identifier(text):
        raise UnsupportedError(f"{text!r:.60} is no name in Python")
    return text


def is_identifier(text: str) -> bool:
    """Return True if `identifier` takes a text."""
    return bool(_NAME.fullmatch(text)) and not keyword.iskeyword(text)


def is_dotted(text: str) -> bool:
    """Return True for an identifier, or several with dots between them."""
    return all(map(is_identifier, text.split(".")))


def ascii_strings(source: str) -> str:
    """Return a program with all its string literals in ASCII; the rest of it stays.

    The source is what `ast.unparse` wrote: it has no raw strings and no odd backslashes. The names
    are not looked at. Before Python 3.12, an expression in an f-string can't hold an escape: there
    a literal stays as it is, if all of it is visible.
    """
    lines = list(io.StringIO(source))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token in reversed([t for t in tokens if _is_text(t) and not t.string.isascii()]):
        (first, begin), (last, end) = token.start, token.end
        text = "".join(c if c.isascii() else ascii(c)[1:-1] for c in token.string)
        if token.type == tokenize.STRING and not _means_the_same(text, token.string):
            text = token.string if is_visible(token.string) else text
        before, after = lines[first - 1][:begin], lines[last - 1][end:]
        lines[first - 1 : last] = [before + text + after]
    return "".join(lines)


def _means_the_same(literal: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(literal)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError):
        return False


def _is_text(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.STRING or "FSTRING" in tokenize.tok_name[token.type]

"""Text in Markdown, as GitHub reads it: an untrusted text is code or a comment, never prose.

Prose has no escape that keeps GitHub from making a mention of `@name`, a reference of `#1` and a
link of `www.`: a backslash before them is gone before they are looked for. In code spans, fenced
blocks and comments none of that happens, nor is there any other markup.

Lives here: those three, as values of a type of their own, and a Jinja environment that refuses to
write anything else. Each brings its own delimiters, so that none can be put where another belongs.
"""

from __future__ import annotations

import re

from jinja2 import BaseLoader, Environment, StrictUndefined

from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import visible, visible_block


class Markdown(str):
    """Markdown that holds no markup but what our own text means."""

    __slots__ = ()


def code_span(text: object) -> Markdown:
    """Return a text in one line of code: between more backticks than any that it holds."""
    line = visible(text).strip() or " "
    ticks = "`" * (_longest("`", line) + 1)
    # One blank next to each delimiter is no part of the code.
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return Markdown(f"{ticks}{padding}{line}{padding}{ticks}")


def fenced(text: object, language: str = "") -> Markdown:
    """Return a block of code: the fence is longer than any run of backticks in it."""
    lines = [line.rstrip() for line in visible_block(text).rstrip().split("\n")]
    fence = "`" * max(3, _longest("`", "\n".join(lines)) + 1)
    return Markdown("\n".join([f"{fence}{language}", *lines, fence]))


def comment(text: object) -> Markdown:
    """Return a comment of HTML in one line: without two hyphens together, nothing closes it but its
    end.

    What begins with '>' or '->' would close it at once, so put a word of our own first.
    """
    line = re.sub("-(?=-)", "- ", visible(text)).strip()
    return Markdown(f"<!-- {line} -->")


def environment(loader: BaseLoader) -> Environment:
    """Jinja for Markdown: an expression that is neither of the functions above nor a number fails.

    The filters are called `code`, `fenced` and `comment`, and `rounded` for numbers.
    """
    made = Environment(
        loader=loader,
        undefined=StrictUndefined,
        finalize=_checked,
        keep_trailing_newline=True,
        autoescape=False,
    )
    filters = {"code": code_span, "fenced": fenced, "comment": comment, "rounded": _rounded}
    made.filters |= filters
    return made


def _checked(value: object) -> object:
    if isinstance(value, (Markdown, int)):
        return value
    raise UnsupportedError(f"the template writes {value!r:.60} as it is: a filter is missing")


def _rounded(number: float) -> Markdown:
    return Markdown(f"{float(number):.0f}")


def _longest(character: str, text: str) -> int:
    return max(map(len, re.findall(f"{re.escape(character)}+", text)), default=0)

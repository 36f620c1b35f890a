"""The Markdown that an issue may be: our headings, lists and blocks of code.

Read with a parser of CommonMark, as GitHub reads it. Outside of code there is our own text alone,
so nothing there can be a link, a mention or a reference. Called before files are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import is_visible

HEADINGS = ("🐛 Describe the bug", "Error logs", "Versions")
_HTML = ("<details><summary>How this was made</summary>", "</details>")
_COMMENT = re.compile(r"<!-- (?:(?!--).)* -->")
_BLOCKS = ("heading", "paragraph", "bullet_list", "list_item", "inline", "fence", "html_block")
_INLINE = ("text", "code_inline", "strong", "softbreak")
_LANGUAGES = ("", "python")
# What GitHub makes a link, a mention, a reference or a picture of in plain text, and markup that
# was taken for text.
_AUTOMATIC = re.compile(r"[@#<>&\\\[\]`~$|]|://|www\.|GH-|:\w+:")


def check_issue(text: str) -> str:
    """Return the text, if it has the structure of an issue.

    Raises `UnsupportedError` with the first thing that may not be there.
    """
    if not is_visible(text):
        raise _refused("characters that can't be seen")
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    headings = []
    for number, token in enumerate(tokens):
        _check_block(token, first=number == 0)
        headings += [tokens[number + 1].content] if token.type == "heading_open" else []
    if tuple(headings) != HEADINGS:
        raise _refused(f"the headings {headings!a:.80}")
    return text


def _check_block(token: Token, *, first: bool) -> None:
    kind = _kind(token)
    if kind not in _BLOCKS or (kind == "heading" and token.tag != "h3"):
        raise _refused(f"a {kind.replace('_', ' ')}")
    if kind == "fence" and token.info not in _LANGUAGES:
        raise _refused(f"code in {token.info!a:.40}")
    html = token.content.strip() if kind == "html_block" else _HTML[0]
    if html not in _HTML and not (first and _COMMENT.fullmatch(html)):
        raise _refused(f"the HTML {html!a:.60}")
    for child in _inline(token):
        text = child.content if child.type == "text" else ""
        if _kind(child) not in _INLINE or _AUTOMATIC.search(text):
            raise _refused(f"a {_kind(child).replace('_', ' ')} {text!a:.60}".rstrip())


def _inline(token: Token) -> Iterator[Token]:
    yield from token.children or []


def _kind(token: Token) -> str:
    return token.type.removesuffix("_open").removesuffix("_close")


def _refused(what: str) -> UnsupportedError:
    return UnsupportedError(f"an issue may not hold {what}")

"""A text in Markdown changes nothing of the Markdown around it."""

from __future__ import annotations

import pytest
from jinja2 import DictLoader
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.escaping.nasty import with_every_fragment
from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import visible, visible_block
from torchreel.escaping.markdown import code_span, comment, environment, fenced


def tokens(text: str) -> list[Token]:
    """All tokens, those within lines as well, but for the ends."""
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [inner for token in parsed for inner in (token, *(token.children or []))]


def kinds(text: str) -> list[str]:
    return [token.type for token in tokens(text)]


@with_every_fragment
def test_a_code_span_is_one_wherever_it_stands(text: str) -> None:
    for before in ("", "- ", "a (", "**b**: "):
        line = f"{before}{code_span(text)}, {code_span('`x')} and more"
        assert kinds(line) == kinds(f"{before}{code_span('a')}, {code_span('b')} and more")
        first = next(token for token in tokens(line) if token.type == "code_inline")
        assert first.content.strip() == visible(text).strip()


@with_every_fragment
def test_a_fenced_block_ends_at_its_end(text: str) -> None:
    document = f"# a\n\n{fenced(text, 'python')}\n\n# b\n"
    assert kinds(document) == kinds(f"# a\n\n{fenced('a', 'python')}\n\n# b\n")
    (block,) = [token for token in tokens(document) if token.type == "fence"]
    shown = [line.rstrip() for line in visible_block(text).rstrip().split("\n")]
    assert block.content == "\n".join(shown) + "\n"
    assert block.info == "python"


@with_every_fragment
def test_a_comment_ends_at_its_end(text: str) -> None:
    found = comment(f"Title: {text}")
    (block, *rest) = tokens(f"{found}\n\n# a\n")
    assert block.content.strip() == found
    assert [token.type for token in rest] == kinds("# a\n")
    # HTML also ends a comment at '--!>', and XML has none with '--' in it.
    assert "--" not in found.removeprefix("<!--").removesuffix("-->")


def test_what_no_filter_has_written_is_refused() -> None:
    made = environment(DictLoader({"bare": "{{ a }}", "joined": "{{ 'x' ~ (a | code) }}"}))
    for name in ("bare", "joined"):
        with pytest.raises(UnsupportedError, match="a filter is missing"):
            made.get_template(name).render(a="a")


def test_numbers_and_code_are_written() -> None:
    made = environment(DictLoader({"a": "{{ a | code }} {{ 3 }} {{ 2.6 | rounded }}"}))
    assert made.get_template("a").render(a="@x") == "`@x` 3 3"

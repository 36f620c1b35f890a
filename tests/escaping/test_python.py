"""A text in a program is a comment, a string or a name, and the program stays the same."""
# ruff: noqa: RUF001

from __future__ import annotations

import ast
import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.escaping.nasty import TEXTS, with_every_fragment
from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import is_visible
from torchreel.escaping.python import (
    ascii_strings,
    comment_lines,
    identifier,
    is_dotted,
    is_identifier,
    literal,
)


def tree(source: bytes) -> str:
    return ast.dump(ast.parse(source))


@with_every_fragment
def test_comments_are_comments_in_whatever_encoding_they_ask_for(text: str) -> None:
    source = ("\n".join(comment_lines(text)) + "\nx = 1\n").encode()
    assert tree(source) == tree(b"x = 1\n")
    assert tokenize.detect_encoding(io.BytesIO(source).readline)[0] == "utf-8"
    found = list(tokenize.tokenize(io.BytesIO(source).readline))
    before = [token.type for token in found if token.line.startswith("#")]
    assert is_visible(source.decode())
    assert set(before) == {tokenize.COMMENT, tokenize.NL}
    assert len(found) == len(before) + 6, "there is more than the encoding, 'x = 1' and the ends"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x coding: unicode_escape \\nimport os", "# x coding : unicode_escape \\nimport os"),
        ("a -*- eval: x -*-", "# a - * - eval: x - * -"),
        ("a vim: set ai:", "# a vim : set ai:"),
        ("index: 3", "# index: 3"),
        ("", "#"),
    ],
)
def test_no_comment_is_a_setting(text: str, written: str) -> None:
    assert comment_lines(text) == [written]


def test_an_encoding_in_a_comment_would_have_been_a_program() -> None:
    """What the rule is for: Python reads the line as two."""
    source = b"# KeyError: coding: unicode_escape \\nx = 1\n"
    assert tree(source) == tree(b"x = 1\n")
    (line,) = comment_lines(source.decode().removeprefix("# ").rstrip())
    assert tree(f"{line}\n".encode()) == tree(b"")


@with_every_fragment
def test_a_literal_is_the_text(text: str) -> None:
    source = f"f({literal(text)})"
    assert source.isascii()
    (call,) = ast.parse(source).body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    (given,) = call.value.args
    assert ast.literal_eval(given) == text


@given(TEXTS | st.text(alphabet="abаｘﬁ_1𝐚class"))
def test_a_name_is_one_name_of_ascii(text: str) -> None:
    if is_identifier(text):
        assert identifier(text) == text
        (expression,) = ast.parse(text).body
        assert ast.dump(expression) == ast.dump(ast.Expr(ast.Name(text, ast.Load())))
        assert text.isascii()
    else:
        with pytest.raises(UnsupportedError):
            identifier(text)


@pytest.mark.parametrize("text", ["ｏｓ", "ﬁ", "class", "a b", "a.b", "", "1a", "a\n", "а"])
def test_what_only_looks_like_a_name_is_none(text: str) -> None:
    assert not is_identifier(text)


def test_a_path_is_names_with_dots_between_them() -> None:
    assert is_dotted("torch.ops.aten")
    assert not is_dotted("torch..aten")
    assert not is_dotted("torch.in.aten")


@given(st.lists(TEXTS, max_size=3))
def test_strings_of_a_program_become_ascii_and_stay_the_same(texts: list[str]) -> None:
    source = ast.unparse(ast.parse(f"x = {texts!r}\nif x:\n    y = f(x)")) + "\n"
    found = ascii_strings(source)
    assert found.isascii()
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(source))


def test_strings_with_values_in_them_become_ascii() -> None:
    source = "print(f'größe {x!r:>4} \u3164', b'a', 'plain')\n"
    found = ascii_strings(source)
    assert found == "print(f'gr\\xf6\\xdfe {x!r:>4} \\u3164', b'a', 'plain')\n"
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(source))


def test_a_program_stays_one_where_an_expression_in_a_string_has_letters() -> None:
    source = """x = f"bad {d['größe']} größe"\ny = 'ß'\n"""
    found = ascii_strings(source)
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(source))
    assert found.endswith("y = '\\xdf'\n")


@pytest.mark.parametrize("hidden", ["\u202e", "\u3164", "\u200b", "\ufe0f"])
def test_what_nobody_sees_is_spelled_there_too(hidden: str) -> None:
    """Where that is no program, it is refused as one."""
    found = ascii_strings(f"""x = f"bad {{d['größe{hidden}']}}"\n""")
    assert hidden not in found

"""Whether the attack on the rules would see a text that became code in what Inductor writes."""

from __future__ import annotations

import pytest

from benchmarks.hostile_code import marked_output_code

CODE = """
# a comment with {comment}
def call(args):
    return args, '{text}'

cpp = async_compile.cpp('''
#include <x.h>
void kernel() {{ throw "{message}"; /* a comment */ }} // {note}
''')
"""
HARMLESS = {"comment": "MARK", "text": "MARK", "message": "MARK", "note": "MARK"}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("comment", "x\nMARK()"),
        ("text", "x' + MARK() + '"),
        ("message", 'x"; MARK(); "'),
        ("message", "x*/''' + MARK() + '''"),
        ("message", "x\nMARK();"),
        ("message", "x''' MARK"),  # no Python at all
        ("note", "x\nMARK();"),
    ],
)
def test_a_text_that_became_code_is_seen(where: str, text: str) -> None:
    assert marked_output_code(CODE.format(**HARMLESS | {where: text}), "MARK")


def test_a_text_that_stayed_in_its_string_is_none() -> None:
    assert marked_output_code(CODE.format(**HARMLESS), "MARK") == []
    assert marked_output_code(CODE.format(**HARMLESS | {"message": "//MARK"}), "MARK") == []

"""The lexer of literals never loses step, whatever stands around them."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchreel.recorder.redaction.literals import literals, unescaped
from torchreel.recorder.redaction.strict_text import text as strict


def strings(text: str) -> list[str]:
    """What is between the quotes of the strings in a text."""
    data = text.encode()
    found = literals(data)
    return [data[at.inner : at.inner_end].decode() for at in found if not at.is_number]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("d['k'] == 'v' and d[''] == 'w'", ["k", "v", "", "w"]),
        ("b'x' rb\"y\" f'{z}' u'w'", ["x", "y", "{z}", "w"]),
        ("'''a 'b' \"c\"''' 'd'", ["a 'b' \"c\"", "d"]),
        ("'a\\'b' 'c'", ["a\\'b", "c"]),
        ("it doesn't say 'x', nor Bob's 'y'", ["x", "y"]),
        ("'it isn't so' 'z'", ["it isn't so", "z"]),
        ("('cut off", ["cut off"]),
        ("'cut off\n'next'", ["cut off", "next"]),
        ('"""never closed\n\n', ["never closed\n\n"]),
        ('{\\"k\\": \\"v\\"}', ["k", "v"]),
        ("if'x'in y", ["x"]),
    ],
)
def test_strings_are_found(text: str, found: list[str]) -> None:
    assert strings(text) == found


VALUES = st.recursive(
    st.text(max_size=12) | st.binary(max_size=8) | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


def _texts(value: object) -> list[str]:
    if isinstance(value, (str, bytes)):
        return [value if isinstance(value, str) else value.decode("latin-1")]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_all_strings_of_a_repr_are_found_in_step(value: object) -> None:
    data = repr(value).encode("utf-8", "surrogatepass")
    found = [unescaped(data[at.inner : at.inner_end]) for at in literals(data) if not at.is_number]
    assert found == _texts(value)


@settings(max_examples=200, deadline=None)
@example("s0")
@example("x.size()")
@example("check_tensor(")
@given(VALUES)
def test_no_literal_of_a_repr_is_left(value: object) -> None:
    """Whatever stands before them."""
    text = f"guard {[value, 'zq-text', 918273645]!r} == L['zq-key'].zq_name  # 12.5"
    left = strict(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    assert "zq-text" not in left
    assert "918273645" not in left
    assert "zq-key" not in left
    assert "zq_name" in left


@pytest.mark.parametrize(
    "text",
    [
        "check_tensor(x, size=[128, 64], stride=[64, 1])", "x.size()[0] == 128",
        "Eq(s77, 128)", "torch.Size([128, 64])", "at x.py:128 in f", "line 128, in f",
        'y: "f32[128, 64][64, 1]cpu" = x', " 12   128 LOAD_FAST   14",
    ],
)  # fmt: skip
def test_sizes_and_positions_stay(text: str) -> None:
    assert strict(text.encode()).decode() == text

"""The grammar of predicates: a closed one, of which nothing is ever executed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.errors import UsageError
from torchreel.minifier.oracle.predicates import (
    QUANTITIES,
    AtLeast,
    Compared,
    Found,
    Joined,
    Negated,
    Predicate,
    parse_predicate,
)

NUMBERS = [name for name, quantity in QUANTITIES.items() if quantity.kind == "number"]
TEXTS = [name for name, quantity in QUANTITIES.items() if quantity.kind == "text"]
ONES = st.one_of(
    st.builds(
        Compared,
        st.sampled_from(NUMBERS),
        st.sampled_from([">", ">=", "<", "<=", "==", "!="]),
        st.integers(0, 10**9).map(float),
    ),
    st.builds(
        Found,
        st.sampled_from(TEXTS),
        st.booleans(),
        st.text(st.characters(codec="ascii", categories=["L", "P", "Zs"])).map(re.escape),
    ),
)


def _joined(parts: list[Predicate]) -> Predicate:
    return Joined("and", tuple(parts))


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    ONES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(_joined), inner.map(Negated)
    ),
    max_leaves=6,
)
VALUES = {"guards": 41.0, "warnings": 0.0, "code": "tmp0 = at::sin(x)\nreturn", "memory": 2.0**31}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("guards > 40", True),
        ("guards>41", False),
        ("guards >= 41 and warnings == 0", True),
        ("guards < 3 or not warnings > 0", True),
        ("not (guards > 40 and warnings > 0)", True),
        ("memory > 1.5G", True),
        ("memory <= 2048M", True),
        ('code ~ "at::(sin|cos)"', True),
        ('code !~ "^return$"', False),
        ('code ~ "say \\"x\\""', False),
        ("recompiles > 0", None),
        ("recompiles > 0 or guards > 40", True),
        ("recompiles > 0 and guards > 41", False),
    ],
)
def test_what_it_means(text: str, expected: bool | None) -> None:
    """What was not measured decides nothing."""
    assert parse_predicate(text).holds(VALUES) is expected


@pytest.mark.parametrize(
    "text",
    [
        "", "guards", "guards >", "guards > x", "guards ~ 4", 'guards ~ "x"', "code > 4",
        "code ~ x", "guards > 4 guards > 5", "(guards > 4", "guards > 4)", "pages > 4",
        'code ~ "("', "__import__('os')", "guards > 4; import os", "guards > 4 and", "guards > 4kB",
    ],
)  # fmt: skip
def test_what_it_does_not_know(text: str) -> None:
    """Is refused, with what it could have been."""
    with pytest.raises(UsageError, match="compile_seconds > 5"):
        parse_predicate(text)


@given(PREDICATES)
def test_the_text_of_a_predicate_is_that_predicate(found: Predicate) -> None:
    """The canonical text is what the store keeps, and the key of every verdict."""
    again = parse_predicate(str(found))
    assert str(again) == str(found)
    assert again.names() == found.names()


@given(PREDICATES)
def test_a_script_says_the_same(found: Predicate) -> None:
    """What the exported script evaluates is what the search looked for."""
    values = dict.fromkeys(NUMBERS, 41.0) | dict.fromkeys(TEXTS, "at::sin")
    assert bool(eval(found.spelled(), {"re": re, **values})) is found.holds(values)


@given(ONES, st.floats(0, 10**9), st.floats(0, 10**9))
def test_a_measurement_that_was_cut_short(found: Predicate, least: float, more: float) -> None:
    """Decides only what no longer one could change."""
    if isinstance(found, Compared):
        known = found.holds({found.name: AtLeast(least)})
        assert known is None or known is found.holds({found.name: least + more})

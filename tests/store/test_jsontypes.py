"""Canonical JSON: one spelling per value, and nothing that isn't JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.store.documents.jsontypes import (
    Json,
    canonical_json,
    exact_json,
    json_text,
    parse_json,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
# Python compares -0.0 and 0.0, 1 and 1.0 equal: compare what JSON says instead
VALUES = st.recursive(
    SCALARS.filter(lambda x: not (isinstance(x, float) and math.isinf(x))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
# Of more than 64 bits, too; and text that UTF-8 can't carry.
EXACT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(EXACT)
def test_what_is_exact_has_the_canonical_spelling(value: Json) -> None:
    assert exact_json(value, sort_keys=True) == canonical_json(value)


def test_nothing_is_too_deep_or_too_long_for_the_exact_spelling() -> None:
    value: Json = 1
    for _ in range(400):
        value = [value]
    assert exact_json(value) == canonical_json(value)
    with pytest.raises(TypeError):
        exact_json([object()])
    with pytest.raises(TypeError):
        exact_json([{1: st}])


@given(VALUES)
def test_parsing_undoes_it(value: Json) -> None:
    assert parse_json(canonical_json(value)) == value


@given(VALUES)
def test_it_is_its_own_canonical_form(value: Json) -> None:
    assert canonical_json(parse_json(canonical_json(value))) == canonical_json(value)


@given(st.dictionaries(st.text(), st.integers()), st.randoms(use_true_random=False))
def test_the_order_of_keys_is_no_part_of_it(value: dict[str, int], random: object) -> None:
    items = list(value.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical_json(dict(items)) == canonical_json(value)


def test_spelling() -> None:
    value: Json = {"b": [1, None, True], "a": "é"}
    assert canonical_json(value) == '{"a":"é","b":[1,null,true]}'.encode()


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}])
def test_what_has_no_json_form_is_refused(value: Json) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)


@pytest.mark.parametrize("value", [{1, 2}, [object()], {"a": b"1"}])
def test_what_is_no_json_is_refused(value: Json) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


def test_an_undecodable_path_survives() -> None:
    path = b"/src/\xff.py".decode("utf-8", "surrogateescape")
    assert parse_json(canonical_json([path])) == [path]
    json_text([path]).encode("utf-8")  # fit for a database
    assert json.loads(json_text([path])) == [path]

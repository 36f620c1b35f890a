"""Arguments of nodes survive the way through the tagged tree, and no two share a spelling."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchreel.errors import UnsupportedError
from torchreel.formats.node_arguments import decode_value, encode_value, map_tree, node_refs
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.sampled_from([
        torch.float32, torch.int64, torch.device("cpu"), torch.device("cuda", 3), torch.strided,
        torch.contiguous_format, torch.channels_last, Ellipsis, torch.ops.aten.add.Tensor,
    ]),
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.builds(slice, inner, inner, inner),
        st.lists(st.integers(0, 9)).map(torch.Size),
    ),
    max_leaves=12,
)


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(kind)


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.slow
@given(trees)
def test_a_value_survives(value: object) -> None:
    data = parse_json(canonical_json(encode_value(value)))
    assert _same(decode_value(data, _no_leaf), value)


@given(trees, trees)
def test_different_values_are_spelled_differently(left: object, right: object) -> None:
    if not _same(left, right):
        assert canonical_json(encode_value(left)) != canonical_json(encode_value(right))


def test_not_a_number_survives() -> None:
    assert math.isnan(decode_value(encode_value(math.nan), _no_leaf))  # type: ignore[arg-type]


def test_what_has_no_form_is_named_with_the_reason() -> None:
    class Thing:
        pass

    data = encode_value([1, Thing()])
    assert isinstance(data, list)
    assert "Thing" in str(data[1])
    with pytest.raises(UnsupportedError):
        decode_value(data, _no_leaf)


@pytest.mark.parametrize(
    "data",
    [
        {"f": "0x1p99999"}, {"d": [[["a"], 1]]}, {"range": [0, 1, 0]}, {"range": ["x", 0, 1]},
        {"size": ["a"]}, {"size": [1.5]}, {"slice": 1},
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused(data: Json) -> None:
    with pytest.raises(UnsupportedError, match="malformed"):
        decode_value(data, _no_leaf)


def test_references_are_found_and_replaced() -> None:
    tree: Json = [{"n": "a"}, {"t": [{"n": "b"}, 1]}, {"d": [["n", {"n": "a"}]]}, {"fn": "fn:n"}]
    assert list(node_refs(tree)) == ["a", "b", "a"]
    replaced = map_tree(tree, lambda name: {"n": name.upper()})
    assert list(node_refs(replaced)) == ["A", "B", "A"]
    assert list(node_refs(tree)) == ["a", "b", "a"]

"""Values of documents as the kind that a reader expects."""

from __future__ import annotations

import pytest

from torchreel.errors import UnsupportedError
from torchreel.store.documents.kinds import (
    as_list,
    as_object,
    list_only,
    required_list,
    required_object,
)


@pytest.mark.parametrize("value", [None, 1, "text", True])
def test_another_kind_is_taken_for_an_empty_one(value: object) -> None:
    assert as_object(value) == {}
    assert as_list(value) == list_only(value) == []


def test_a_list_and_an_object_are_themselves() -> None:
    rows, data = [1], {"a": 1}
    assert as_object(data) is data
    assert list_only(rows) is rows
    assert as_object(rows) == {}
    assert as_list(data) == list_only(data) == []


def test_a_tuple_is_a_list_for_as_list_alone() -> None:
    assert as_list((1, 2)) == [1, 2]
    assert list_only((1, 2)) == []


def test_as_list_makes_a_new_one() -> None:
    rows = [1]
    assert as_list(rows) == rows
    assert as_list(rows) is not rows


def test_what_is_required_is_there_or_refused() -> None:
    assert required_list({"rows": [1]}, "rows", "it") == [1]
    assert required_object({"data": {"a": 1}}, "data", "it") == {"a": 1}
    with pytest.raises(UnsupportedError, match="the checkpoint has no list 'rows'"):
        required_list({"rows": (1,)}, "rows", "the checkpoint")
    with pytest.raises(UnsupportedError, match="the checkpoint has no object 'data'"):
        required_object({}, "data", "the checkpoint")

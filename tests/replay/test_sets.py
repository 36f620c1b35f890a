"""Sets that are made again in the order that they had."""

from __future__ import annotations

import pickle

from torchreel.replay.child.frames.sets import Unpickler, has_sets, in_order


def test_the_order_of_a_larger_table_is_found() -> None:
    shrunk = set(range(0, 300, 3))
    for number in list(shrunk):
        if number not in (3, 33, 66, 129):
            shrunk.discard(number)
    items = list(shrunk)
    assert list(set(items)) != items
    assert (list(in_order(items)[0]), in_order(items)[1]) == (items, True)


def test_an_order_that_no_table_gives_is_told() -> None:
    items = [2, 1, 4, 3]
    found, alike = in_order(items)
    assert (found, alike) == ({1, 2, 3, 4}, False)


def test_items_that_have_become_equal_are_one() -> None:
    assert in_order([1, 1.0]) == ({1}, False)


def test_a_pickle_says_which_sets_have_another_order() -> None:
    data = pickle.dumps([{3, 1, 2}, [set], frozenset({1}), set()], 3)
    assert has_sets(data)
    unpickler = Unpickler(data)
    assert unpickler.load() == [{1, 2, 3}, [set], frozenset({1}), set()]
    assert unpickler.disordered == []
    assert not has_sets(pickle.dumps([1], 3))

"""What is read of the operators on a tape that somebody else may have written."""

import pytest

from torchreel.errors import DamagedStore
from torchreel.replay.imposed.fake_cache import by_stage
from torchreel.store.records import Event


def dispatched(seq: int, name: str, depth: object) -> Event:
    data = {"outcome": "miss", "depth": depth}
    return Event(1, seq, 1, "joint", "fake_tensors.dispatch", name, seq, data, None)  # type: ignore[arg-type]


def test_operators_stand_in_the_one_that_they_ran_within() -> None:
    (outer,) = by_stage([dispatched(1, "inner", 1), dispatched(2, "outer", 0)])["joint"]
    assert (outer.name, [inner.name for inner in outer.within]) == ("outer", ["inner"])


@pytest.mark.parametrize("depth", [3000, -1])
def test_a_depth_that_no_operator_has_is_damage(depth: int) -> None:
    with pytest.raises(DamagedStore, match="none can be"):
        by_stage([dispatched(1, "x", depth)])

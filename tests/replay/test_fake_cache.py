"""What is read of the operators in an event log that somebody else may have written."""

from pathlib import Path

import pytest

from tests.replay.programs import record
from tests.replay.test_replay import compiles_of
from torchreel.errors import DamagedStore
from torchreel.replay import replay
from torchreel.replay.imposed.fake_cache import by_stage
from torchreel.store.database import Store
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


LEARNED_LATER = """
positions = torch.arange(256).expand(1, -1)
def f(x, length):
    here = positions[:, :length]
    return (here + x) * here  # only now it is known that the sizes are equal
compiled = torch.compile(f, backend="aot_eager")
for length in (5, 6):
    compiled(torch.ones(2, length), length)
"""


@pytest.mark.slow
def test_a_result_has_the_sizes_of_when_it_was_worked_out(tmp_path: Path) -> None:
    """Dynamo sliced before the ShapeEnv learned that two symbols are one: the cache kept that."""
    path = tmp_path / "learned.db"
    assert record(path, "learned", source=LEARNED_LATER) == 0
    with Store.open(path, write=True) as store:
        (_, dynamic) = compiles_of(store)
        verdict = replay(store, dynamic)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")

"""What a program writes on its nodes stays with them in a replay, whatever it is."""

from __future__ import annotations

import enum
from pathlib import Path

import torch

import torchreel
from torchreel.formats.node_arguments import StandIn, decode_value, encode_value
from torchreel.replay.compare.verdict import IDENTICAL
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store


class Stage(enum.Enum):
    """A stage of a pipeline, as programs name them."""

    FIRST = 1


def test_an_enumeration_of_the_program_does_not_take_the_rest_with_it(tmp_path: Path) -> None:
    def annotated(x: torch.Tensor) -> torch.Tensor:
        with torch.fx.traceback.annotate({"pipeline": 0, "stage": Stage.FIRST, "t": (1, [2])}):
            return x.sin()

    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        torch.compile(annotated, backend="aot_eager")(torch.randn(4, requires_grad=True))
    with Store.open(tmp_path / "run.db") as store:
        (row,) = queries.compiles(store, queries.recordings(store)[0].id)
        verdict = replay(store, row)
    assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
    assert verdict.compared


def test_what_stands_for_a_value_is_written_as_the_value_was() -> None:
    data = encode_value(Stage.FIRST)
    live = decode_value(data, lambda kind, found: StandIn(tuple(found.items())))  # type: ignore[union-attr,arg-type]
    assert encode_value(live) == data
    assert repr(live) == repr(Stage.FIRST)

"""Record calls of torch.export with module and arguments, make them again: all identical."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forks
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

PROGRAM = """
import contextlib
import torch
from torch.export import Dim, export


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("shift", torch.full((4,), 0.4375))

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2 + self.shift


class Fails(torch.nn.Module):
    def forward(self, x):
        return x.sin() if x.sum() > 0 else x.cos()


export(Model(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False)
export(Model(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},), strict=True)
with contextlib.suppress(Exception):
    export(Fails(), (torch.ones(3),), strict=False)
"""


def recorded(folder: Path, frames: str) -> Path:
    (folder / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "TORCHREEL": f"full:{folder / 'run.db'}",
        "TORCHREEL_FRAMES": frames,
    }
    forks.run([sys.executable, folder / "program.py"], env=environment, check=True)
    return folder / "run.db"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(recorded(tmp_path_factory.mktemp("exports"), "all"), write=True) as store:
        yield store


def exports(store: Store) -> list[Compile]:
    """Not strict, strict, and one that fails."""
    (program, *_) = queries.recordings(store)
    assert queries.lost(store, program.id) == []
    return [row for row in queries.compiles(store, program.id) if row.backend == "export"]


def dynamo_part(store: Store) -> Compile:
    (program, *_) = queries.recordings(store)
    (found,) = [row for row in queries.compiles(store, program.id) if row.frame_id is not None]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_export_is_made_again_with_trust(store: Store, number: int) -> None:
    verdict = replay(store, exports(store)[number], "frame", trust=True)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    kinds = {row.kind for row in verdict.compared if row.identical}
    assert {"export.start", "proxies.node"} <= kinds
    assert ("export.end" in kinds, "failure" in kinds) == (number < 2, number == 2)


@pytest.mark.slow
def test_its_dynamo_part_is_compared_with_it(store: Store) -> None:
    verdict = replay(store, dynamo_part(store), "frame", trust=True)
    assert verdict.verdict == "identical"
    assert {"guards.guard", "export.end"} <= {row.kind for row in verdict.compared if row.identical}


def test_without_trust_nothing_of_it_runs(store: Store) -> None:
    with pytest.raises(UntrustedError, match="--trust"):
        replay(store, exports(store)[0], "frame")


def test_from_a_graph_the_refusal_names_the_entry(store: Store) -> None:
    for compile, what in [
        (exports(store)[1], "a call of torch.export"),
        (dynamo_part(store), "Dynamo's part of a call of torch.export"),
    ]:
        with pytest.raises(UnsupportedError, match=rf"{what}.*--entry frame --trust"):
            replay(store, compile, "graph")


def test_no_value_of_a_buffer_is_recorded(store: Store) -> None:
    (checkpoint,) = queries.checkpoints(store, dynamo_part(store))
    blob = store.read_blob(checkpoint.digest)
    assert b"shift" in blob
    assert (0.4375).hex().encode() not in blob


@pytest.mark.slow
def test_only_what_fails_is_kept_by_default(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path, "failing")) as store:
        kept = [queries.frame_bundle(store, row) is not None for row in exports(store)]
    assert kept == [False, False, True]

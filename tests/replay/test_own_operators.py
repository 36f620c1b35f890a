"""Frames that call operators which the program itself defines replay without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.replay.compare.verdict import IDENTICAL, REFUSED
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store

PROGRAM = """
import torch

@torch.library.custom_op("reelown::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by

scale.register_fake(lambda x, by: torch.empty_like(x))

def setup(ctx, inputs, output):
    pass

scale.register_autograd(lambda ctx, grad: (grad * 2.0, None), setup_context=setup)

def local():
    @torch.library.custom_op("reelown::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(lambda x: torch.empty_like(x))
    return double, torch.ops.reelown.double.default

double, overload = local()

library = torch.library.Library("reellib", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.define("refuse(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
library.impl("refuse", lambda x: 1 / 0, "CPU")
for name in ("reellib::twice", "reellib::refuse"):
    torch.library.register_fake(name, lambda x: torch.empty_like(x))

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad

def by_definition(x):
    return scale(x, 2.0).sin()

def by_name(x):
    return torch.ops.reelown.double(x) + 1

def by_overload(x):
    return overload(x) + 2

def by_library(x):
    return torch.ops.reellib.twice(x) * 3

def that_refuses(x):
    return torch.ops.reellib.refuse(x) * 3

def of_custom_view(x):
    return x * 2

def run(fn, x):
    return torch.compile(fn, backend="aot_eager")(x)

run(by_definition, torch.rand(4, requires_grad=True)).sum().backward()
run(by_name, torch.rand(4))
run(by_overload, torch.rand(4))
run(by_library, torch.rand(4))
def trained(x):
    return scale(x, 2.0).sin()

torch.compile(trained)(torch.rand(4, requires_grad=True)).sum().backward()
run(of_custom_view, Same.apply(torch.rand(4, requires_grad=True)))
run(that_refuses, torch.rand(4))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--frames", "all"]
    # A hit of AOTAutograd's cache partitions nothing: there was one where the suite ran before.
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    done = subprocess.run(
        [*command, "--", sys.executable, "program.py"],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert "ZeroDivisionError" in done.stderr
    assert done.returncode == 1
    return folder / "run.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["by_definition", "by_name", "by_overload", "by_library", "of_custom_view"]
)
def test_a_frame_brings_the_operators_that_it_calls(path: Path, name: str) -> None:
    with Store.open(path) as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        (row,) = (row for row in rows if row.frame_name == name)
        verdict = replay(store, row, "frame", trust=True)
        assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"
        kinds = {found.kind for found in verdict.compared}
        assert ("custom.operator" in kinds) == name.startswith("by_")


@pytest.mark.slow
def test_an_operator_of_a_library_is_stood_in_for(path: Path) -> None:
    """What its kernel computes is code of the program's, so a failure of that is not replayed."""
    with Store.open(path) as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        (row,) = (row for row in rows if row.frame_name == "that_refuses")
        verdict = replay(store, row, "frame", trust=True)
    assert (row.status, verdict.verdict) == ("failed", REFUSED)
    assert verdict.detail.startswith("all that was compiled is identical, but the failure")
    assert "reellib.refuse.default" in verdict.detail
    assert any("a stand-in answers" in note for note in verdict.notes)


@pytest.mark.slow
def test_a_backward_names_the_operators_of_its_forward(path: Path) -> None:
    """It calls none of them: they stand in the records of where its nodes are from."""
    with Store.open(path) as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        (row,) = (row for row in rows if row.frame_name == "trained")
        partitions = {one.partition for one in queries.checkpoints(store, row)}
        assert partitions == {"", "forward", "backward"}
        verdict = replay(store, row, "aot")
        assert verdict.verdict == IDENTICAL, f"{verdict}\n{verdict.difference}"

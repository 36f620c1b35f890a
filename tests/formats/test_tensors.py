"""Fakes rebuilt from their descriptions have symbolic sizes where the recorded ones had."""

import pytest
import torch
from torch._dynamo.source import LocalSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    guard_int,
)

from torchreel.formats.shape_env import snapshots
from torchreel.formats.tensors.encoder import Encoder
from torchreel.formats.tensors.fakes import Decoder


def dynamic(mode: FakeTensorMode, real: torch.Tensor) -> torch.Tensor:
    """A fake whose last size is dynamic; the same symbol for the same source."""
    sizes = [DimDynamic.STATIC] * (real.dim() - 1) + [DimDynamic.DYNAMIC]
    context = StatelessSymbolicContext(dynamic_sizes=sizes)
    return mode.from_tensor(real, source=LocalSource("x"), symbolic_context=context)


@pytest.mark.parametrize("specialised", [True, False])
def test_a_size_that_became_a_number_stays_symbolic(specialised: bool) -> None:
    env = ShapeEnv()
    real = torch.empty(2, 12)
    made_before = dynamic(FakeTensorMode(shape_env=env), real)
    if specialised:
        assert guard_int(made_before.shape[1]) == 12
    # AOTAutograd makes its own fake of the input, once the size is a number.
    recorded = dynamic(FakeTensorMode(shape_env=env), real)

    description = Encoder(unreplaced=True).describe(made_before)
    snapshot = snapshots.encode_shape_env(env)
    table = snapshots.decode_symbols(snapshot)
    copy = snapshots.new_shape_env(snapshot)
    snapshots.restore(copy, snapshot, table)
    decoder = Decoder(FakeTensorMode(shape_env=copy), table, snapshots.hints(snapshot))
    rebuilt = decoder.fake(description)

    assert isinstance(rebuilt, torch.Tensor)
    assert recorded._has_symbolic_sizes_strides
    assert rebuilt._has_symbolic_sizes_strides

"""A guard with several remainders teaches the recorded one, however the process hashes text."""

import pytest
import sympy
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import Mod

from torchreel.formats.symbols import encode_expr
from torchreel.replay.imposed import remainders


def _env() -> tuple[ShapeEnv, sympy.Symbol]:
    env = ShapeEnv()
    symbol = env.create_symbol(24, ConstantSource("size"), dynamic_dim=DimDynamic.DYNAMIC)
    assert isinstance(symbol, sympy.Symbol)
    return env, symbol


def _outer(symbol: sympy.Symbol) -> sympy.Basic:
    padding = Mod(256 - Mod(symbol, 256), 256)
    return Mod(4 * symbol + 4 * padding, 1024)


@pytest.mark.parametrize("is_learned", [True, False])
def test_a_guard_teaches_what_it_taught_when_recorded(is_learned: bool) -> None:
    env, symbol = _env()
    outer = _outer(symbol)
    recorded = [encode_expr(outer)] if is_learned else []
    with remainders.imposed(recorded):
        assert env.evaluate_expr(sympy.Eq(outer, 0), hint=True)
    assert env.divisible == ({outer} if is_learned else set())

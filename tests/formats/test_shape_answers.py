"""What a ShapeEnv remembers, written and read back: asked the same, it adds the same guards."""

import sympy
import torch
from torch._dynamo.source import LocalSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    guard_int,
)
from torch.utils._sympy.functions import FloorDiv, Mod

from torchreel.formats.shape_env import answers as shape_answers
from torchreel.formats.shape_env import snapshots
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import shapes


def a_symbol(env: ShapeEnv) -> torch.SymInt:
    """A dynamic size; whoever is asked about it guards."""
    fake = FakeTensorMode(shape_env=env)
    tensor = fake.from_tensor(
        torch.empty(96, 8),
        source=LocalSource("x"),
        symbolic_context=StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC]
        ),
    )
    size = tensor.shape[0]
    assert isinstance(size, torch.SymInt)
    return size


def ask(env: ShapeEnv, *exprs: sympy.Basic) -> int:
    """Ask a ShapeEnv; return how many guards it has then."""
    for expr in exprs:
        env.evaluate_expr(expr, True)
    return len(env.guards)


def written(env: ShapeEnv) -> tuple[dict[str, Json], dict[str, Json]]:
    """A ShapeEnv as data: its fields, and what it remembers."""
    return snapshots.encode_shape_env(env), shape_answers.encode(env)


def read(snapshot: dict[str, Json], answers: dict[str, Json] | None) -> ShapeEnv:
    """The ShapeEnv from data.  What any ShapeEnv remembered is forgotten."""
    table = snapshots.decode_symbols(snapshot)
    made = snapshots.new_shape_env(snapshot)
    snapshots.restore(made, snapshot, table)
    shapes.forget_answers()
    shape_answers.restore(made, answers, table)
    return made


def questions(symbol: sympy.Symbol, count: int) -> list[sympy.Basic]:
    """Different questions, each of which the range of the symbol answers without a guard."""
    return [sympy.Gt(number * symbol, number) for number in range(2, count + 2)]


def test_a_question_that_was_forgotten_is_guarded_once_more() -> None:
    env = ShapeEnv()
    size = a_symbol(env).node.expr
    remainder = sympy.Ne(Mod(size, 7), 2)
    first = ask(env, remainder)
    assert ask(env, remainder) == first  # it is remembered
    assert ask(env, *questions(size, 300)) == first
    snapshot, answers = written(env)
    assert ask(env, remainder) == first + 1
    assert ask(read(snapshot, answers), remainder) == first + 1
    # Another ShapeEnv tells it by the guard that there is.
    assert ask(read(snapshot, None), remainder) == first


def test_a_question_that_is_remembered_is_not_guarded_again() -> None:
    env = ShapeEnv()
    size = a_symbol(env).node.expr
    remainder = sympy.Ne(Mod(size, 7), 2)
    first = ask(env, remainder, *questions(size, 100))
    copy = read(*written(env))
    assert ask(copy, remainder) == first
    # 155 more are kept beside the 101 that were asked: the next one takes the place of the oldest.
    assert ask(copy, *questions(size, 256)[100:255]) == first
    assert ask(copy, remainder) == first


def test_answers_are_those_of_one_shape_env() -> None:
    one, other = ShapeEnv(), ShapeEnv()
    ask(one, *questions(a_symbol(one).node.expr, 3))
    size = a_symbol(other)
    before = shape_answers.encode(other)
    assert guard_int(size) == 96
    assert len(shape_answers.encode(other)["answers"]) == len(before["answers"]) + 1  # type: ignore[arg-type]


def test_what_could_not_be_told_is_remembered_however_it_was_asked() -> None:
    env = ShapeEnv()
    size = a_symbol(env).node.expr
    assert env._maybe_evaluate_static(sympy.Ge(Mod(size, 7), 5)) is None
    assert env._maybe_evaluate_static(sympy.Ne(Mod(size, 7), 1), size_oblivious=False) is None
    snapshot, answers = written(env)
    assert len(answers["unknown"]) == 2  # type: ignore[arg-type]
    copy = read(snapshot, answers)
    # A guard may come that tells it; the recorded ShapeEnv does not look at that.
    copy.axioms[sympy.Ge(Mod(size, 7), 5)] = sympy.true
    assert copy._maybe_evaluate_static(sympy.Ge(Mod(size, 7), 5)) is None
    assert shape_answers.encode(copy) == answers


def test_axioms_that_were_simplified_are_not_simplified_again() -> None:
    env = ShapeEnv()
    half = FloorDiv(a_symbol(env).node.expr, 2)
    ask(env, sympy.Ne(half, 7))
    assert env._maybe_evaluate_static(sympy.Ne(half, 9)) is None
    number = len(env.axioms)
    copy = read(*written(env))
    for each in (env, copy):
        each._maybe_evaluate_static(sympy.Ne(half, 11))
    assert len(copy.axioms) == len(env.axioms) == number
    assert not copy._resimplify_floor_div_axioms

"""ShapeEnvs, symbolic scalars, and torch's SymPy functions."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import sympy
import torch
import torch._guards
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
import torch.utils._sympy.functions as sympy_extension
from torch._guards import ShapeGuard
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import RuntimeAssert, ShapeEnv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.singleton_int import SingletonInt
from torch.utils._sympy.value_ranges import ValueRanges

from torchreel.torch_compat.patching import disguise, patched

__all__ = [
    "RuntimeAssert",
    "ShapeEnv",
    "ShapeGuard",
    "SingletonInt",
    "SymNode",
    "ValueRanges",
    "int_oo",
]


@cache
def sympy_functions() -> dict[str, type[sympy.Basic]]:
    """Return torch's own SymPy functions by class name: they occur in sizes, guards and ranges."""
    return {
        name: value
        for name, value in vars(sympy_extension).items()
        if isinstance(value, type)
        and issubclass(value, sympy.Basic)
        and value.__module__ == sympy_extension.__name__
        and not name.startswith("_")
    }


def suppress_guards(env: ShapeEnv) -> Any:
    """Return a context in which the ShapeEnv notes no guard."""
    return env.suppress_guards()


def unreplaced(node: Any) -> Any:
    """Return the expression of a SymNode, as it was made: `expr` is that after replacements."""
    return node._expr if isinstance(node, SymNode) else expression(node)


def range_of(node: SymNode) -> tuple[int | None, int | None]:
    """Return the least and the most that a symbol can be; None where there is no limit."""
    env = node.shape_env
    found = env.var_to_range.get(node.expr) if env is not None else None
    bounds = (found.lower, found.upper) if found is not None else (None, None)
    least, most = [int(b) if isinstance(b, sympy.Integer) else None for b in bounds]
    # Sizes of tensors end here, and torch writes that down as well as an infinite one.
    return least, None if most is not None and most >= sys.maxsize - 1 else most


def is_specialised(sizes: Iterable[int | torch.SymInt]) -> bool:
    """Return True if one of them is a symbol that became a number."""
    return any(isinstance(size, torch.SymInt) and expression(size.node).is_number for size in sizes)


def expression(node: Any) -> sympy.Basic:
    """Return the expression of a SymInt's node.

    A nested int (the length of each row of a jagged tensor) has no symbol, and SymPy's name for it
    is a SingletonInt.
    """
    if not isinstance(node, SymNode) and node.is_nested_int():
        return SingletonInt(node.nested_int(), coeff=node.nested_int_coeff())
    return node.expr


def singleton_parts(expr: Any) -> tuple[int, int]:
    """Return the number of a nested int, and the factor before it."""
    return int(expr._val), int(expr._coeff)


def nested_hint(env: ShapeEnv, expr: sympy.Basic) -> torch.SymInt | None:
    """Return the hint of a length of rows (a nested int, or a multiple of one); else None."""
    known = {symbol: env.backed_var_to_val.get(symbol) for symbol in expr.free_symbols}
    if not any(isinstance(value, SingletonInt) for value in known.values()):
        return None
    factors = [known.get(factor, factor) for factor in sympy.Mul.make_args(expr)]
    # By its own operator: SymPy would leave the product as it is.
    product = functools.reduce(operator.mul, factors)
    return nested_int(product) if isinstance(product, SingletonInt) else None


def nested_int(expr: Any) -> torch.SymInt:
    """Return the nested int that a SingletonInt stands for, as jagged tensors make them."""
    from torch.nested._internal.nested_int import NestedIntNode

    return torch.SymInt(NestedIntNode(*singleton_parts(expr)))  # type: ignore[no-untyped-call]


def hint_of(node: SymNode) -> object:
    """Return a SymNode's hint, without computing one."""
    return getattr(node, "_hint", None)


def no_hint() -> object:
    """Return the marker by which a SymNode does not compute a hint."""
    from torch.fx.experimental.sym_node import _NO_HINT

    return _NO_HINT


def shape_guard(expr: sympy.Basic, size_oblivious: bool) -> ShapeGuard:
    """Return a guard of a ShapeEnv, without a source location."""
    return ShapeGuard(expr, torch._guards.SLoc(None, None), size_oblivious)


def runtime_assert(expr: sympy.Basic, message: str) -> RuntimeAssert:
    """Return a deferred runtime assert, without a stack."""
    from torch.utils._traceback import CapturedTraceback

    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    return RuntimeAssert(expr, message, stack)


def restore_guards(env: ShapeEnv, guards: Iterable[tuple[sympy.Basic, bool]]) -> None:
    """Give a ShapeEnv its guards, without source locations."""
    nowhere = torch._guards.SLoc(None, None)
    env.guards = [ShapeGuard(expr, nowhere, oblivious) for expr, oblivious in guards]


def restore_deferred(
    env: ShapeEnv, asserts: Mapping[sympy.Symbol | None, list[tuple[sympy.Basic, str]]]
) -> None:
    """Give a ShapeEnv its deferred runtime asserts, without stacks."""
    from torch.utils._traceback import CapturedTraceback

    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    env.deferred_runtime_asserts = {
        symbol: [RuntimeAssert(expr, message, stack) for expr, message in rows]
        for symbol, rows in asserts.items()
    }


def settle_shape_env(env: ShapeEnv) -> None:
    """Fill the fields beside the state (locations, stacks), and drop caches of the old state."""
    from torch.utils._traceback import CapturedTraceback

    nowhere = torch._guards.SLoc(None, None)
    stack = CapturedTraceback.extract(skip=1)  # type: ignore[no-untyped-call]
    for symbol in env.var_to_range:
        env.var_to_range_sloc[symbol] = symbolic_shapes.ValueRangesSLoc(nowhere, nowhere)
        env.var_to_stack.setdefault(symbol, stack)
    for symbol in env.replacements:
        env.replacements_slocs[symbol] = nowhere
    env._resimplify_floor_div_axioms = True
    env._replacements_version_counter += 1
    env._update_version_counter()


# What ShapeEnv keeps in caches of functools: `formats.shape_env.answers` reads and fills them.
def evaluation_cache() -> functools._lru_cache_wrapper[Any]:
    """Return the last answers of any ShapeEnv to `evaluate_expr`."""
    return ShapeEnv._inner_evaluate_expr


def static_cache(env: ShapeEnv) -> functools._lru_cache_wrapper[Any] | None:
    """Return torch's cache of static evaluations; None if it is of another ShapeEnv, or stale.

    `symbolic_shapes._lru_cache` keeps it, and the version of it, in the cells of a closure.
    """
    wrapper: Any = ShapeEnv._maybe_evaluate_static
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    if cells["prior_version"].cell_contents != env._version_counter:
        return None
    found: functools._lru_cache_wrapper[Any] = cells["fn_cache"].cell_contents
    return found


def keyword_mark(cache: functools._lru_cache_wrapper[Any]) -> object:
    """Return the object between positional and keyword arguments in the keys of a cache."""
    return next(item for item in reversed(gc.get_referents(cache)) if type(item) is object)


def has_stale_axioms(env: ShapeEnv) -> bool:
    """Return True if the next evaluation simplifies the axioms with divisions anew."""
    return env._resimplify_floor_div_axioms


def set_stale_axioms(env: ShapeEnv, stale: bool) -> None:
    """Set whether the next evaluation simplifies the axioms with divisions anew."""
    env._resimplify_floor_div_axioms = stale


def remember_answer(env: ShapeEnv, question: tuple[Any, ...], answer: sympy.Basic) -> None:
    """Put an answer into the cache of `evaluate_expr`: the next one to this is not evaluated."""
    _with_attributes(
        env,
        {"_evaluate_expr": lambda *_, **__: answer},
        lambda: ShapeEnv._inner_evaluate_expr(env, *question),
    )


def remember_unknown(env: ShapeEnv, expr: sympy.Basic, keywords: Mapping[str, bool]) -> None:
    """Cache in `_maybe_evaluate_static` that an expression can't be decided without a guard."""
    module: Any = symbolic_shapes
    worker = module._maybe_evaluate_static_worker
    module._maybe_evaluate_static_worker = lambda *_: None
    try:
        _with_attributes(
            env,
            {"simplify": lambda unchanged, *_, **__: unchanged, "axioms": {}},
            lambda: env._maybe_evaluate_static(expr, **keywords),
        )
    finally:
        module._maybe_evaluate_static_worker = worker


def _with_attributes(
    env: ShapeEnv, attributes: Mapping[str, Any], call: Callable[[], object]
) -> None:
    """Call while the ShapeEnv has these in place of its own methods and fields."""
    before = dict(vars(env))
    vars(env).update(attributes)
    try:
        call()
    finally:
        vars(env).clear()
        vars(env).update(before)


def forget_answers() -> None:
    """Clear the caches of ShapeEnv methods: some of these calls change a ShapeEnv.

    Their keys are counts (ShapeEnv._get_key), which are the same again after a ShapeEnv was put
    back into an earlier state.
    """
    for name in dir(ShapeEnv):
        clear = getattr(getattr(ShapeEnv, name), "cache_clear", None)
        if clear is not None:
            clear()


@contextlib.contextmanager
def choosing_remainders(choose: Callable[[Sequence[Any], Sequence[Any]], Any]) -> Iterator[None]:
    """Have `choose` select the remainder of an equality from which a ShapeEnv learns.

    It gets all of them, and those that would be learned to be zero.  torch takes the first of
    `Eq.atoms(Mod)`, a set.
    """

    from torch.utils._sympy.functions import Mod

    learn, atoms = ShapeEnv._maybe_guard_rel, sympy.Eq.atoms

    def learning(env: ShapeEnv, expr: sympy.Basic) -> None:
        remainders = sorted(expr.atoms(Mod), key=str) if isinstance(expr, sympy.Eq) else []
        if not remainders:
            return learn(env, expr)
        chosen = choose(remainders, [one for one in remainders if _is_zero(expr, one)])
        ordered = [chosen, *(one for one in remainders if one != chosen)]

        def given(self: sympy.Basic, *types: Any) -> Any:
            return ordered if self == expr and types == (Mod,) else atoms(self, *types)

        with patched(sympy.Eq, "atoms", given):
            return learn(env, expr)

    disguise(learning, learn)
    with patched(ShapeEnv, "_maybe_guard_rel", learning):
        yield


def _is_zero(equality: sympy.Eq, remainder: sympy.Basic) -> bool:
    """Return True if an equality makes a remainder in it zero."""
    from torch.utils._sympy.solve import try_solve

    with contextlib.suppress(NotImplementedError):
        solved = try_solve(equality, remainder, floordiv_inequality=False)
        return solved is not None and solved[1] == 0
    return False

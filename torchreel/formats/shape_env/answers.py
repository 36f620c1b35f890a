"""The questions that a ShapeEnv has answered and remembers: state that is in no field of it.

Lives here: reading that memory out of torch's caches, as data, and filling them again.  Not here:
the fields (`shape_env`).  Called by `checkpoints` and by the replay's `restore`.

A ShapeEnv that is asked the same again answers from `functools.lru_cache`, and adds no guard.  One
of these caches holds the last 256 questions to any ShapeEnv, so what a long trace asked first is
forgotten, and adds its guard once more.  Another remembers, until a range or a replacement
changes, that something could not be told, though guards that came later would tell it.  Without
this memory a replay asks other questions than the recorded compile (state-space models do).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from functools import _lru_cache_wrapper, partial
from typing import Any

import sympy

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, symbols
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import required_list
from torchreel.torch_compat import shapes
from torchreel.torch_compat.shapes import ShapeEnv

Table = Mapping[str, sympy.Symbol]
Question = tuple[Any, ...]
_list = partial(required_list, what="what a ShapeEnv remembers")


def encode(env: ShapeEnv) -> dict[str, Json]:
    """Return the answers that the ShapeEnv has cached, and the questions that it could not decide.

    With it goes whether it has yet to simplify its axioms, which it does at a question.
    """
    return {
        "answers": list(_answers(env)),
        "unknown": list(_unknown(env)),
        "stale_axioms": shapes.has_stale_axioms(env),
    }


def _answers(env: ShapeEnv) -> Iterator[Json]:
    for (expr, *rest), answer in _asked(shapes.evaluation_cache(), env):
        if _is_portable((expr, answer)) and all(_is_scalar(value) for value in rest):
            settings = [node_arguments.encode_value(value) for value in rest]
            yield [symbols.encode_expr(expr), settings, symbols.encode_expr(answer)]


def _unknown(env: ShapeEnv) -> Iterator[Json]:
    """Yield the questions that could not be decided: a guard since then may decide them.

    The others need not be kept: they would be decided again in the same way.
    """
    cache = shapes.static_cache(env)
    if cache is None:
        return
    mark = shapes.keyword_mark(cache)
    for question, answer in _asked(cache, env):
        if answer is not None:
            continue
        place = question.index(mark) if mark in question else len(question)
        names, given = question[place + 1 :: 2], question[place + 2 :: 2]
        keywords = dict(zip(names, given, strict=True))
        if place == 1 and all(type(value) is bool for value in keywords.values()):
            expr = question[0]
            if _is_portable((expr,)):
                yield [symbols.encode_expr(expr), dict(sorted(keywords.items()))]


def _is_portable(exprs: tuple[object, ...]) -> bool:
    try:
        for expr in exprs:
            symbols.encode_expr(expr)
    except UnsupportedError:
        return False
    return True


def _is_scalar(value: object) -> bool:
    return value is None or type(value) in (bool, int, float)


def _asked(cache: _lru_cache_wrapper[Any], env: ShapeEnv) -> list[tuple[Question, Any]]:
    """Return the questions to this ShapeEnv that a cache holds, the longest unused first.

    CPython visits the entries of a limited cache in that order (lru_cache_tp_traverse: key, result
    and type of each link), and an unlimited one has all of them in a dict.
    """
    found = gc.get_referents(cache)
    if cache.cache_parameters()["maxsize"] is None:
        pairs = [pair for item in found if type(item) is dict for pair in item.items()]
    else:
        size = cache.cache_info().currsize
        pairs = [(found[1 + 3 * i], found[2 + 3 * i]) for i in range(size)]
    return [(key[1:], value) for key, value in pairs if type(key) is tuple and key[0] is env]


def restore(env: ShapeEnv, data: Json, table: Table) -> None:
    """Fill the caches as they were.  Raises `UnsupportedError` for what is malformed.

    Comes last: whatever asks the ShapeEnv something afterwards changes them.
    """
    if not isinstance(data, Mapping):
        return  # recorded before this was
    for expr, keywords in _read_unknown(data, table):
        shapes.remember_unknown(env, expr, keywords)
    for question, answer in _read_answers(data, table):
        shapes.remember_answer(env, question, answer)
    if "stale_axioms" in data:
        shapes.set_stale_axioms(env, bool(data["stale_axioms"]))


def _read_answers(data: Mapping[str, Json], table: Table) -> Iterator[tuple[Question, sympy.Basic]]:
    for row in _list(data, "answers"):
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[1], list):
            raise UnsupportedError(f"malformed answer of a ShapeEnv: {row!r:.80}")
        settings = (node_arguments.decode_value(value, _no_leaf) for value in row[1])
        question = symbols.decode_expr(row[0], table), *settings
        yield question, symbols.decode_expr(row[2], table)


def _read_unknown(
    data: Mapping[str, Json], table: Table
) -> Iterator[tuple[sympy.Basic, dict[str, bool]]]:
    for row in _list(data, "unknown"):
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], Mapping):
            raise UnsupportedError(f"malformed question to a ShapeEnv: {row!r:.80}")
        keywords = {str(key): bool(value) for key, value in row[1].items()}
        yield symbols.decode_expr(row[0], table), keywords


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"a question to a ShapeEnv holds no {kind!r}, found {data!r:.60}")

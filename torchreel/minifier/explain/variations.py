"""Variations of a smallest case: sizes, dtypes, literals and values, each changed alone.

Lives here: which changes are tried, and the sentences that their verdicts make. Nothing is run
here: `explain` asks the oracle. Each change goes through all of a case: a size wherever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import is_tensor, sizes
from torchreel.minifier.passes.sizes import Resize
from torchreel.minifier.scripts.names import variables
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

# Beyond the size itself: the next one, one that is no multiple of anything, one that fills more
# than a vector register of any machine (16 floats of 32 bits in AVX-512).
_LARGER = (1, 7, 33)
_FLOATS = ("float32", "float64", "bfloat16", "float16")
_INTEGERS = ("int64", "int32", "uint8", "bool")
_COMPLEX = ("complex64", "complex128")
_FAMILIES = (("floating", _FLOATS), ("integer", _INTEGERS), ("complex", _COMPLEX))
# More inputs and literals than this are seldom left over, and each costs runs.
_MOST_SIZES = 3
_MOST_SYMBOLS = 2


@dataclass(frozen=True)
class Change:
    """One thing changed: the value that it has then, and the case."""

    value: int | str
    case: Case


@dataclass(frozen=True)
class Factor:
    """Something about a case that may or may not matter."""

    name: str
    changes: tuple[Change, ...]
    sentence: Callable[[Sequence[int | str], Sequence[int | str]], str]
    """From the values with which the case fails, and passes, to a sentence; '' for none."""


def factors(case: Case) -> Iterator[Factor]:
    """Yield all factors worth a trial, the most informative first."""
    yield from _static_sizes(case)
    yield from _dynamic_sizes(case)
    yield from _dtypes(case)
    yield from _values(case)


def _static_sizes(case: Case) -> Iterator[Factor]:
    found = {s for value in case.checkpoint.inputs for s in sizes(value) if isinstance(s, int)}
    for size in sorted(found, reverse=True)[:_MOST_SIZES]:
        smaller = [size - 1] if size > 1 else []
        wanted = [*smaller, *(size + more for more in _LARGER)]
        changes = tuple(
            Change(new, changed)
            for new in wanted
            if (changed := Resize(size, new, "equal").on(case)) is not None
        )
        where = _where(case, size)
        yield Factor(f"size {size}", changes, _about_size(size, where))


def _where(case: Case, size: int) -> str:
    """Return 'x.size(0)', or the size itself where several dimensions have it."""
    names = variables(case.graph)
    places = [
        f"{names[node.name]}.size({dim})"
        for node, value in zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
        for dim, found in enumerate(sizes(value))
        if found == size
    ]
    return places[0] if len(places) == 1 else " = ".join(places[:3])


def _about_size(size: int, where: str) -> Callable[[Sequence[int | str], Sequence[int | str]], str]:
    def sentence(fails: Sequence[int | str], passes: Sequence[int | str]) -> str:
        fewer = [n for n in passes if isinstance(n, int) and n < size]
        larger = [n for n in fails if isinstance(n, int) and n > size]
        if not larger or any(isinstance(n, int) and n > size for n in passes):
            return ""
        tried = f"({_listed(larger)} fail as well)" if len(larger) > 1 else f"({larger[0]} too)"
        return f"any {where} of at least {size} {tried}" if fewer else f"any {where} {tried}"

    return sentence


def _dynamic_sizes(case: Case) -> Iterator[Factor]:
    known = [
        (s, hint) for s, hint in sorted(case.checkpoint.hints.items()) if isinstance(hint, int)
    ]
    used = {s for value in case.checkpoint.inputs for s in sizes(value) if isinstance(s, str)}
    for symbol, hint in [pair for pair in known if pair[0] in used][:_MOST_SYMBOLS]:
        smaller = [hint - 1] if hint > 2 else []  # 0 and 1 are never symbols
        wanted = [*smaller, *(hint + more for more in _LARGER)]
        changes = tuple(Change(new, _with_hint(case, symbol, new)) for new in wanted)
        yield Factor(f"size {symbol}", changes, _about_size(hint, f"dynamic size {symbol}"))


def _with_hint(case: Case, symbol: str, new: int) -> Case:
    doc = case.checkpoint
    state = as_object(doc.shape_env.get("state"))
    rows: list[Json] = [
        [symbol, [new] if isinstance(as_list(row)[1], list) else new]
        if as_list(row)[:1] == [symbol]
        else row
        for row in as_list(state.get("backed_var_to_val"))
    ]
    snapshot = {**doc.shape_env, "state": {**state, "backed_var_to_val": rows}}
    return replace(case, checkpoint=replace(doc, shape_env=snapshot))


def _dtypes(case: Case) -> Iterator[Factor]:
    """Yield, for each dtype, other dtypes for all its inputs; inputs with recorded values stay."""
    found = {
        str(as_object(value).get("dtype"))
        for value in case.checkpoint.inputs
        if is_tensor(value) and not {"item", "data", "storage"} & set(as_object(value))
    }
    names = variables(case.graph)
    for dtype in sorted(found):
        family = next((f for f in _FAMILIES if dtype in f[1]), None)
        if family is None:
            continue
        outside = "int64" if family[0] != "integer" else "float32"
        others = [name for name in family[1] if name != dtype] + [outside]
        changes = tuple(Change(name, _with_dtype(case, dtype, name)) for name in others)
        inputs = [
            names[node.name]
            for node, value in zip(case.graph.placeholders, case.checkpoint.inputs, strict=True)
            if as_object(value).get("dtype") == dtype
        ]
        about = _about_dtype(dtype, family, ", ".join(inputs), len(changes))
        yield Factor(f"dtype {dtype}", changes, about)


def _with_dtype(case: Case, old: str, new: str) -> Case:
    inputs = tuple(
        {**as_object(value), "dtype": new}
        if as_object(value).get("dtype") == old and is_tensor(value)
        else value
        for value in case.checkpoint.inputs
    )
    return replace(case, checkpoint=replace(case.checkpoint, inputs=inputs))


def _about_dtype(
    dtype: str, family: tuple[str, tuple[str, ...]], inputs: str, asked: int
) -> Callable[[Sequence[int | str], Sequence[int | str]], str]:
    def sentence(fails: Sequence[int | str], passes: Sequence[int | str]) -> str:
        own = [name for name in fails if name in family[1]]
        others = [name for name in fails if name not in family[1]]
        if not own and not others:
            if len(passes) < asked:  # with some it fails in another way, or can't be run
                return ""
            verb = "passes" if len(passes) == 1 else "pass"
            return f"only {dtype} for {inputs} ({_listed(passes)} {verb})"
        if others and not passes:
            return f"any dtype of {inputs} ({_listed(fails)} fail as well)"
        if not any(name in family[1] for name in passes):
            return f"any {family[0]} dtype of {inputs} ({_listed(own)} fail as well)"
        return f"dtype of {inputs}: {_listed([dtype, *fails])} fail, {_listed(passes)} pass"

    return sentence


def _values(case: Case) -> Iterator[Factor]:
    """Yield other random numbers for the inputs; none for a case that is only compiled."""
    if case.harness == "compile" or not case.checkpoint.inputs:
        return
    changes = tuple(Change(f"seed {seed}", replace(case, seed=seed)) for seed in (1, 2))

    def sentence(fails: Sequence[int | str], passes: Sequence[int | str]) -> str:
        if fails and not passes:
            return "any values of the inputs (other seeds fail as well)"
        return "the values of the inputs matter (other seeds pass)" if passes else ""

    yield Factor("values", changes, sentence)


def _listed(items: Sequence[int | str]) -> str:
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"

"""The symbols of two compiles, and what their ShapeEnvs know at the end.

Lives here: which symbol of one stands for which of the other (the one with the same source, for
torch may number them otherwise), and where they part.  Not here: how a table comes about
(`torchreel.analysis.shapes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from torchreel.analysis.diff.alignment import align
from torchreel.analysis.diff.layers.expressions import parse
from torchreel.analysis.diff.report import ABSENT, DiffSide, LayerDiff, LayerDifference
from torchreel.analysis.differences import cell
from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.shapes import Fact, Symbol, SymbolTable, shape_events, symbol_table
from torchreel.errors import TorchreelError, UnsupportedError
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json

_COLUMNS = ("hint", "range", "replacement", "size_like")
_FACTS = {"guards": "guard", "asserts": "runtime assert", "divisible": "divisible"}


def symbols(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return symbols that only one side has or knows otherwise; guards and assertions over them."""
    ours, theirs = _table(left), _table(right)
    if isinstance(ours, str) or isinstance(theirs, str):
        notes = [found for found in (ours, theirs) if isinstance(found, str) and found]
        return LayerDiff("symbols", 0, 0, note="; ".join(dict.fromkeys(notes)))
    found = tuple(_differences(ours, theirs, (left, right)))
    return LayerDiff("symbols", _size(ours), _size(theirs), found)


def _table(side: DiffSide) -> SymbolTable | str:
    """Return the final table; why there is none, or '' where the compile has no ShapeEnv at all."""
    log = CompileEventLog(side.store, side.compile)
    if not any(kind.startswith("shape_env.") for kind in log.kinds):
        return ""
    try:
        return symbol_table(shape_events(log))
    except TorchreelError as error:
        return str(error)


def _size(table: SymbolTable) -> int:
    return len(table.symbols) + sum(len(_facts(table, name)) for name in _FACTS)


def _facts(table: SymbolTable, name: str) -> list[Fact]:
    found: list[Fact] = getattr(table, name)
    return found


def _differences(
    left: SymbolTable, right: SymbolTable, sides: tuple[DiffSide, DiffSide]
) -> Iterator[LayerDifference]:
    ours, theirs = _by_source(left), _by_source(right)
    names = _names(ours), _names(theirs)
    for key in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(key), theirs.get(key)
        texts = _row(one, names[0]), _row(other, names[1])
        if texts[0] != texts[1]:
            yield LayerDifference(key, *texts, _at(sides[0], one), _at(sides[1], other))
    for name, what in _FACTS.items():
        ours_of, theirs_of = _facts(left, name), _facts(right, name)
        yield from _fact_differences(
            what, _spelled(ours_of, names[0]), _spelled(theirs_of, names[1]), sides
        )


def _by_source(table: SymbolTable) -> dict[str, Symbol]:
    """Return symbols by where guards read them; those that nothing reads by their kind, in
    order.
    """
    found: dict[str, Symbol] = {}
    numbers = {"backed symbol": count(), "unbacked symbol": count()}
    for row in table.symbols.values():
        kind = "backed symbol" if row.backed else "unbacked symbol"
        found[row.sources[0] if row.sources else f"{kind} {next(numbers[kind])}"] = row
    return found


def _names(by_source: Mapping[str, Symbol]) -> Mapping[str, str]:
    return {row.name: key for key, row in by_source.items()}


def _row(row: Symbol | None, names: Mapping[str, str]) -> str:
    if row is None:
        return ABSENT
    cells = {column: cell(row, column) for column in _COLUMNS}
    if row.replacement is not None:
        cells["replacement"] = _expression(row.replacement, names)
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in cells.items() if text)


def _at(side: DiffSide, row: Symbol | None) -> str:
    return "" if row is None else side.at(row.created)


@dataclass(frozen=True)
class Spelled:
    """A guard or an assertion: what is compared, what is shown, and its event."""

    key: str
    shown: str
    seq: int


def _spelled(facts: Sequence[Fact], names: Mapping[str, str]) -> list[Spelled]:
    return [
        Spelled(_key(fact.expr, names), _expression(fact.expr, names), fact.seq) for fact in facts
    ]


def _key(expr: Json, names: Mapping[str, str]) -> str:
    """Return an expression over sources, its sums in an order that does not depend on symbols."""
    return parse(str(expr)).renamed(names).text


def _expression(expr: Json, names: Mapping[str, str]) -> str:
    """Return an expression over sources, for a person."""
    try:
        return spelling.expression(expr, lambda name: names.get(name, name))
    except UnsupportedError:
        return parse(str(expr)).renamed(names).text


def _fact_differences(
    what: str, ours: Sequence[Spelled], theirs: Sequence[Spelled], sides: tuple[DiffSide, DiffSide]
) -> Iterator[LayerDifference]:
    for i, j in align([item.key for item in ours], [item.key for item in theirs]):
        one, other = None if i is None else ours[i], None if j is None else theirs[j]
        if one is None or other is None or one.key != other.key:
            (left, left_at), (right, right_at) = _both(one, sides[0]), _both(other, sides[1])
            yield LayerDifference(what, left, right, left_at, right_at)


def _both(item: Spelled | None, side: DiffSide) -> tuple[str, str]:
    return (ABSENT, "") if item is None else (item.shown, side.at(item.seq))

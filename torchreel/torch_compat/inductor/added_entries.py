"""Entries that a program adds to the tables of Inductor: decompositions, lowerings, patterns.

Lives here: the entries that are none of torch's own, and putting them into the tables of another
process.  Not here: how they are kept, as the program's own code is (`recorder.probes.bundles`,
`replay.child.objects`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import torch

from torchreel.errors import TorchreelError

PREFIX = "table."
"""Prefix of the names of entries: `table.lowering:NAMESPACE.NAME.OVERLOAD`."""
_DECOMPOSITION, _LOWERING = f"{PREFIX}decomposition:", f"{PREFIX}lowering:"
_PATTERN = f"{PREFIX}pattern:"
MOST = 64
"""Entries of each kind: more are a library's whole, which each checkpoint would hold anew."""
_PASSES = "torch._inductor.fx_passes."
_TORCHS = ("aten.", "prims.", "inductor.", "quantized_decomposed.")
_HOMES = {_DECOMPOSITION: ("decomposition", "decompositions"), _LOWERING: ("lowering", "lowerings")}
_OF_LOWERING = ("decomp_fn", "broadcast", "type_promotion_kind", "convert_input_to_bool")
"""The variables of the function that Inductor puts around a lowering."""

Table = MutableMapping[Any, Callable[..., Any]]


def own_entries() -> dict[str, object]:
    """Return the entries that are none of torch's own, by name; their functions are code."""
    return dict(_found_once(_all_own, _DECOMPOSITION, _LOWERING, _PATTERN))


def own_decompositions() -> list[object]:
    """Return the operators that the program decomposes by functions of its own."""
    return list(_found_once(_operators_decomposed, _DECOMPOSITION))


_once: dict[object, tuple[object, Any]] = {}
"""Results, with the contents of the tables then: they hold thousands, and seldom change."""


def _found_once(find: Callable[[], Any], *prefixes: str) -> Any:
    contents = [_content(prefix) for prefix in prefixes]
    if _PATTERN in prefixes:
        lists = [known for _, one in _passes() for known in list(one.patterns.values())]
        contents.append(hash(tuple(id(entry) for known in lists for entry in known)))
    known = _once.get(find)
    if known is None or known[0] != contents:
        known = _once[find] = contents, find()
    return known[1]


def _content(prefix: str) -> int:
    table = _table(prefix)
    cached = _cached_decompositions() if prefix == _DECOMPOSITION else None
    return hash((id(cached), *map(id, table.keys()), *map(id, table.values())))


def _cached_decompositions() -> Any:
    """Return the table that Inductor made of all decompositions at its first compile, if it has.

    What is registered later is not in it, and decides nothing.
    """
    home: Any = sys.modules.get("torch._inductor.decomposition")
    made = getattr(home, "fast_random_decomps", None)
    config: Any = sys.modules.get("torch._inductor.config")
    if made is None or config.fallback_random or not made.cache_info().currsize:
        return None
    return made()


def _own_of(prefix: str) -> list[tuple[Any, Any]]:
    """Return the entries of a table that are the program's own, and that Inductor uses."""
    own = [(op, entry) for op, entry in list(_table(prefix).items()) if _is_own(entry)]
    cached = _cached_decompositions() if prefix == _DECOMPOSITION else None
    return [(op, entry) for op, entry in own if cached is None or cached.get(op) is entry]


def _all_own() -> dict[str, object]:
    found: dict[str, object] = {}
    for prefix in (_DECOMPOSITION, _LOWERING):
        own = _own_of(prefix)[:MOST]
        found |= {f"{prefix}{op}": _taken_apart(entry) for op, entry in own}
    return found | dict(islice(_own_patterns(), MOST))


def _operators_decomposed() -> list[object]:
    return [op for op, _ in _own_of(_DECOMPOSITION)]


def is_for(name: str, operators: Container[str]) -> bool:
    """Return True unless an entry is for an operator of a library that is none of these.

    `operators` are those of a graph, as `NAMESPACE.NAME.OVERLOAD`.
    """
    if not name.startswith((_DECOMPOSITION, _LOWERING)):
        return True
    operator = name.partition(":")[2]
    return operator.startswith(_TORCHS) or operator in operators


@contextlib.contextmanager
def imposed(objects: Mapping[str, Callable[[], object]]) -> Iterator[list[str]]:
    """Add entries to the tables for the length of a `with`; `objects` loads each, by its name.

    Yields the names of those that this torch has no place for.
    """
    left: list[str] = []
    with ExitStack() as stack:
        for name, load in objects.items():
            try:
                if name.startswith((_DECOMPOSITION, _LOWERING)):
                    stack.enter_context(_entry_added(name, load()))
                elif name.startswith(_PATTERN):
                    stack.enter_context(_pattern_added(name, load()))
            except (AttributeError, LookupError, TypeError, TorchreelError) as error:
                left.append(f"{name} ({error})")
        yield left


def _table(prefix: str) -> Table:
    """Return a table of Inductor; an empty one before Inductor is imported."""
    module, name = _HOMES.get(prefix, ("", ""))
    return getattr(sys.modules.get(f"torch._inductor.{module}"), name, {})


def _is_own(entry: object) -> bool:
    """Return True for a function that is not of torch, whatever torch put around it."""
    while isinstance(entry, functools.partial):
        entry = entry.func
    home = str(getattr(entry, "__module__", "torch")).partition(".")[0]
    return home != "torch" and home not in sys.stdlib_module_names - {"__main__"}


def _taken_apart(entry: Any) -> object:
    """Return the function of a lowering, and how it was registered; any other entry as it is."""
    names = getattr(getattr(entry, "__code__", None), "co_freevars", ())
    if not {*names} >= {*_OF_LOWERING}:
        return entry
    cells = dict(zip(names, entry.__closure__, strict=True))
    return tuple(cells[name].cell_contents for name in _OF_LOWERING)


@contextlib.contextmanager
def _entry_added(name: str, entry: Any) -> Iterator[None]:
    from torch._inductor import decomposition, lowering

    operator: Any = torch.ops
    for part in name.partition(":")[2].split("."):
        operator = getattr(operator, part)
    table: Any = lowering.lowerings if name.startswith(_LOWERING) else decomposition.decompositions
    before = dict(table)
    if type(entry) is tuple:
        given = dict(zip(_OF_LOWERING, entry, strict=True))
        lowering._register_lowering([operator], **given, lowering_dict=table)
    else:
        table[operator] = entry
    decomposition.fast_random_decomps.cache_clear()  # made of the table at its first use
    try:
        yield
    finally:
        table.clear()
        table.update(before)
        decomposition.fast_random_decomps.cache_clear()


def _own_patterns() -> Iterator[tuple[str, object]]:
    for place, found in _passes():
        entries = {id(entry): entry for known in list(found.patterns.values()) for entry in known}
        own = [entry for entry in entries.values() if _is_own(getattr(entry, "handler", None))]
        for number, entry in enumerate(own):
            yield f"{_PATTERN}{place}:{number}", entry


def _passes() -> Sequence[tuple[str, Any]]:
    """Return Inductor's passes that match patterns, each with its place: module, name, number."""
    return _passes_of(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _passes_of(modules: int) -> list[tuple[str, Any]]:
    matcher: Any = sys.modules.get("torch._inductor.pattern_matcher")
    if matcher is None:
        return []
    return [
        (f"{module.removeprefix(_PASSES)}.{name}.{number}", one)
        for module in [name for name in sys.modules if name.startswith(_PASSES)]
        for name, held in list(vars(sys.modules[module]).items())
        for number, one in enumerate(held if type(held) in (list, tuple) else [held])
        if type(one) is matcher.PatternMatcherPass
    ]


@contextlib.contextmanager
def _pattern_added(name: str, entry: Any) -> Iterator[None]:
    place = name.removeprefix(_PATTERN).rpartition(":")[0]
    importlib.import_module(f"{_PASSES}{place.split('.')[0]}")
    found = dict(_passes())[place]
    entry.register(found)
    try:
        yield
    finally:
        for known in found.patterns.values():
            known[:] = [one for one in known if one is not entry]

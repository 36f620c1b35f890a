"""The difference of two neighbouring cases in words, if it is one edit.

Told from the cases alone, whatever edit led from one to the other. Called by `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.passes.config import entry_name
from torchreel.minifier.scripts.names import variables
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

Edit = tuple[int, str]
"""The distance of two cases (less is nearer), and the change that leads from one to the other."""

# Fields of a tensor that follow from its sizes.
_DERIVED = ("stride", "storage_size")


def deciding_edit(case: Case, other: Case) -> Edit | None:
    """Return the one edit from a case to another; None if there are several, or none."""
    found = list(_edits(case, other))
    return found[0] if len(found) == 1 else None


def _edits(case: Case, other: Case) -> Iterator[Edit]:
    yield from _settings(case, other)
    here, there = case.graph, other.graph
    if here.call_nodes != there.call_nodes or len(here.placeholders) != len(there.placeholders):
        yield from _fewer_nodes(case, other)
        return
    yield from _inputs(case, other)
    yield from _hints(case, other)
    yield from _arguments(here, there)


def _inputs(case: Case, other: Case) -> Iterator[Edit]:
    """Describe the inputs that changed; those that changed in the same way count as one edit."""
    names = variables(case.graph)
    changed: dict[tuple[str, str, str], list[str]] = {}
    nodes = case.graph.placeholders
    for node, one, two in zip(nodes, case.checkpoint.inputs, other.checkpoint.inputs, strict=True):
        if one != two:
            changed.setdefault(_change(one, two), []).append(names[node.name])
    sizes = {key: found for key, found in changed.items() if key[0] == "size"}
    if len(sizes) == len(changed) and len(changed) > 1:
        parts = [f"{', '.join(found)}: {new} instead of {old}" for (_, old, new), found in sizes.items()]  # fmt: skip # noqa: E501
        yield 1, "; ".join(parts)
        return
    for (_, old, new), found in changed.items():
        yield 1, f"{', '.join(found)}: {new} instead of {old}"


def _change(one: Json, two: Json) -> tuple[str, str, str]:
    keys = {
        key
        for key in {*as_object(one), *as_object(two)}
        if as_object(one).get(key) != as_object(two).get(key)
    }
    kind = "size" if keys - {"offset"} <= {"size", *_DERIVED} and "size" in keys else "other"
    return kind, spelling.value(one), spelling.value(two)


def _hints(case: Case, other: Case) -> Iterator[Edit]:
    for symbol, hint in sorted(case.checkpoint.hints.items()):
        now = other.checkpoint.hints.get(symbol, hint)
        if now != hint:
            yield 1, f"the dynamic size {symbol} is {now} instead of {hint}"


def _arguments(one: GraphDoc, two: GraphDoc) -> Iterator[Edit]:
    names = variables(one)
    there = variables(two)
    for a, b in zip_longest(one.nodes, two.nodes):
        if a is None or b is None:
            yield 9, "the graph has other nodes"
        elif a.is_call and b.is_call:
            before, after = _spelled(a, names), _spelled(b, there)
            if before != after:
                yield (2 if a.target == b.target else 3), f"{after} instead of {before}"
    for path in sorted({*one.modules, *two.modules}):
        if path in one.modules and path in two.modules:
            yield from _arguments(one.modules[path], two.modules[path])
        else:
            yield 9, "the graph has other bodies"


def _spelled(node: NodeDoc, names: Mapping[str, str]) -> str:
    return spelling.call(
        node.op, node.target, node.args, node.kwargs, lambda name: names.get(name, name)
    )


def _fewer_nodes(case: Case, other: Case) -> Iterator[Edit]:
    """Describe the calls that were left out, if nothing else happened to the calls."""
    targets = [node.target for node in other.graph.nodes if node.is_call]
    left: list[str] = []
    names = variables(case.graph)
    for node in (n for n in case.graph.nodes if n.is_call):
        if node.target in targets:
            targets.remove(node.target)
        else:
            left.append(_spelled(node, names))
    fewer = len(case.checkpoint.inputs) - len(other.checkpoint.inputs)
    if left and not targets:
        yield 4 + len(left), f"without {' and '.join(left)}"
    elif fewer > 0 and not targets:
        yield 4, "without an input"
    else:
        yield 9, "another graph"


def _settings(case: Case, other: Case) -> Iterator[Edit]:
    one, two = case.checkpoint, other.checkpoint
    if case.backend != other.backend:
        yield 3, f'backend="{other.backend}" instead of "{case.backend}"'
    if case.harness != other.harness:
        yield 6, f"only {_HARNESS[other.harness]}, not {_HARNESS[case.harness]}"
    gone = [e for e in one.config if e not in two.config]
    yield from ((3, f"without {entry_name(entry)} = {as_object(entry).get('value')!r}") for entry in gone)  # fmt: skip # noqa: E501
    if len(as_list(one.extra.get("options"))) != len(as_list(two.extra.get("options"))):
        yield 3, "without an option of torch.compile"
    for name in sorted({*one.ambient, *two.ambient}):
        if one.ambient.get(name) != two.ambient.get(name):
            yield 3, f"without {name} as it was recorded"
    symbols = len(as_object(one.shape_env.get("symbols")))
    if len(as_object(two.shape_env.get("symbols"))) < symbols:
        yield 2, "with static sizes (dynamic=False)"


_HARNESS = {
    "compile": "compiled", "run": "run", "train": "run backward", "accuracy": "compared with eager",
}  # fmt: skip

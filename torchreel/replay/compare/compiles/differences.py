"""Writes the first difference of two graphs, or of two output codes, as text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

from torchreel.replay.compare.unified import parting, unified
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, parse_json

_DIFF_LINES = 40


VALUE = 180  # characters of a value that is shown


def difference_of(kind: str, left: bytes, right: bytes) -> str:
    if kind == "output code":
        return unified(left.decode().splitlines(), right.decode().splitlines(), context=3)
    whole = graph_documents.whole
    return _graph_difference(whole(parse_json(left)), whole(parse_json(right)))


def _graph_difference(left: Json, right: Json) -> str:
    """Return the differences between two graphs, one line for each, by the names of the nodes."""
    lines = (f"{path}: {_both(a, b)}" for path, a, b in _walk(left, right))
    return "\n".join(itertools.islice(lines, _DIFF_LINES))


def _both(recorded: Json, replayed: Json) -> str:
    ours, theirs = parting(_dump(recorded), _dump(replayed), VALUE)
    return f"recorded {ours}, replayed {theirs}"


def _walk(left: Json, right: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            inner = f"{path}.{key}" if path else key
            yield from _walk(left.get(key, "(absent)"), right.get(key, "(absent)"), inner)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (ours, theirs) in enumerate(zip(left, right, strict=True)):
            yield from _walk(ours, theirs, f"{path}[{_label(ours, number)}]")
    elif left != right:
        yield path, left, right


def _label(item: Json, number: int) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return str(name or number)


def _dump(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

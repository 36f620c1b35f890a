"""The guards of two compiles: what each holds on to, in the order in which they are checked.

Lives here: guards, aliasing guards and ambient guards as lines.  Not here: the guards of a ShapeEnv
(`symbols`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis.diff.alignment import align
from torchreel.analysis.diff.report import ABSENT, DiffSide, LayerDiff, LayerDifference
from torchreel.analysis.diff.text import plain
from torchreel.events.guards import AliasGuard, AmbientState, Guard
from torchreel.replay.compare.normalise import canonical_text
from torchreel.replay.compare.normalise_dynamo import DynamoNormaliser
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.records import Event


@dataclass(frozen=True)
class GuardLine:
    """A guard as text, and the event that it is."""

    what: str
    text: str
    seq: int


def guards(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return guards that only one side has, or that differ."""
    ours, theirs = _lines(left), _lines(right)
    found = list(_differences(ours, theirs, (left, right)))
    return LayerDiff("guards", len(ours), len(theirs), tuple(found))


def _differences(
    ours: Sequence[GuardLine], theirs: Sequence[GuardLine], sides: tuple[DiffSide, DiffSide]
) -> Iterator[LayerDifference]:
    for i, j in align([_key(line) for line in ours], [_key(line) for line in theirs]):
        one, other = None if i is None else ours[i], None if j is None else theirs[j]
        if one is not None and other is not None and one.what != other.what:
            yield _difference(one, None, sides)
            yield _difference(None, other, sides)
        elif one is None or other is None or one.text != other.text:
            yield _difference(one, other, sides)


def _key(line: GuardLine) -> tuple[str, str]:
    return line.what, line.text


def _difference(
    one: GuardLine | None, other: GuardLine | None, sides: tuple[DiffSide, DiffSide]
) -> LayerDifference:
    (left, left_at), (right, right_at) = (
        (ABSENT, "") if line is None else (line.text, side.at(line.seq))
        for line, side in zip((one, other), sides, strict=True)
    )
    return LayerDifference((one or other).what, left, right, left_at, right_at)  # type: ignore[union-attr]


def _lines(side: DiffSide) -> list[GuardLine]:
    found: list[GuardLine] = []
    for kind, lines in _KINDS.items():
        for event in queries.events(side.store, side.compile, kind):
            found += lines(event)
    return found


def guard_lines(event: Event) -> list[GuardLine]:
    """Return a guard as lines without what is of one process only."""
    data = as_object(event.data)
    checks = [_plain(item) for item in list_only(data.get("code"))]
    rest = [
        f"{key} {_plain(data[key])}"
        for key in ("class", "object", "arguments") if data.get(key) is not None
    ]  # fmt: skip
    what = f"{event.name} {data.get('expression') or ''}".rstrip()
    return [GuardLine(what, "; ".join(checks + rest) or "(ambient)", event.seq)]


def _fields(event: Event) -> list[GuardLine]:
    data = event.data if isinstance(event.data, Mapping) else {"": event.data}
    what = event.kind.removeprefix("guards.")
    return [
        GuardLine(f"{what} {event.name} {key}", _plain(value), event.seq)
        for key, value in data.items()
    ]


def _plain(value: Json) -> str:
    return canonical_text(DynamoNormaliser().text(plain(value)))


_KINDS = {Guard.kind: guard_lines, AliasGuard.kind: _fields, AmbientState.kind: _fields}

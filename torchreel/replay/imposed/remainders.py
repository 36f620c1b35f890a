"""Imposes on a replay which remainder of a guard became known to be zero.

torch learns from a guard such as `Mod(4*s + 4*Mod(-s, 256), 1024) == 0` by the first of the `Mod`
in it, out of a set: which one that is depends on how the process hashes text.  What was learned is
in the event log (`shape_env.divisible`).  Lives here: reading it, and `imposed`, which the child of
a replay runs its stage in.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchreel.events.shape_env import Divisible
from torchreel.replay.compare.lanes import mark_of
from torchreel.replay.compare.selection import MARK
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json, canonical_json

if TYPE_CHECKING:
    from torchreel.replay.compare.selection import Point
    from torchreel.store.database import Store
    from torchreel.store.records import Compile


def learned(store: Store, compile: Compile, point: Point) -> tuple[Json, ...]:
    """Return the remainders that became known to be zero after a checkpoint, in their order."""
    mark = mark_of(queries.events(store, compile, MARK), point)
    if mark is None:
        return ()
    return tuple(
        event.fields.expr
        for event in queries.events(store, compile, Divisible.kind)
        if isinstance(event.fields, Divisible) and event.seq > mark.seq and event.env == mark.env
    )


def learned_in(store: Store, compiles: Iterable[Compile]) -> list[Json]:
    """Return the remainders that became known to be zero in whole compiles, in their order."""
    return [
        event.fields.expr
        for compile in compiles
        for event in queries.events(store, compile, Divisible.kind)
        if isinstance(event.fields, Divisible)
    ]


@contextlib.contextmanager
def imposed(recorded: Sequence[Json]) -> Iterator[None]:
    """Have each guard with several remainders teach the one that it taught when recorded."""
    from torchreel.formats.symbols import encode_expr
    from torchreel.torch_compat.shapes import choosing_remainders

    left = Counter(map(canonical_json, recorded))

    def choose(remainders: Sequence[Any], teaching: Sequence[Any]) -> Any:
        for remainder in remainders:
            spelled = canonical_json(encode_expr(remainder))
            if left[spelled] > 0:
                left[spelled] -= 1
                return remainder
        silent = [remainder for remainder in remainders if remainder not in teaching]
        return (silent or remainders)[0]

    with choosing_remainders(choose):
        yield

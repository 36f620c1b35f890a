"""From two addresses to the document of their comparison.

Lives here: the rows of the listing, and whose details have room.  Not here: what is compared
(`torchreel.analysis.diff`, `torchreel.analysis.why.cache_keys`), nor texts side by side (`texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TypeVar

import msgspec

from torchreel.analysis.diff import CompileDiff, DiffReport, LayerDiff, LayerDifference, diff
from torchreel.analysis.diff.report import DiffSide, place
from torchreel.analysis.diff.text import parting_lines, parting_texts
from torchreel.analysis.durations import compile_ns
from torchreel.analysis.why.cache_keys import why_cache
from torchreel.errors import DamagedStore, TorchreelError, UnsupportedError
from torchreel.report.comparison.document import (
    ComparedEnvironment,
    ComparedLayer,
    ComparedPair,
    ComparedPlace,
    ComparisonDocument,
    LoneCompile,
    PairDetails,
)
from torchreel.report.comparison.texts import compared_texts
from torchreel.report.compiles.keys import key_of
from torchreel.report.document import FORMAT, ComparedKey
from torchreel.report.packing import Packer, encoded, json_block
from torchreel.report.page import PAGE_BYTES
from torchreel.store import Store, queries
from torchreel.store.addressing import Address

_MOST_PLACES = 200
"""Places of one layer that a page shows."""
_LONGEST = 4_000
"""Characters of one side of a place."""
_CELL = 120
"""Characters of a line of a place in the listing."""
_Read = TypeVar("_Read")


def build_comparison(
    left: tuple[Store, Address], right: tuple[Store, Address], max_bytes: int
) -> ComparisonDocument:
    """Compare the compiles of two addresses, for a page of at most `max_bytes`.

    Raises UsageError for an address that a store does not have, and if there is nothing to compare.
    """
    found = diff(left, right)
    sides = str(left[1]), str(right[1])
    pairs = [pair for recording in found.recordings for pair in recording.compiles]
    document = ComparisonDocument(
        FORMAT, " and ".join(sides), version("torchreel"), sides, list(_recordings(found)),
        [_pair(pair) for pair in pairs],
        list(_alone(found, lambda each: each.only_left, found.only_left)),
        list(_alone(found, lambda each: each.only_right, found.only_right)),
    )  # fmt: skip
    return _with_details(document, pairs, max_bytes)


def _recordings(found: DiffReport) -> Iterator[ComparedEnvironment]:
    for pair in found.recordings:
        if pair.environment is not None:
            layer = _layer(pair.environment)
            yield ComparedEnvironment(
                place(*pair.left), place(*pair.right), layer, list(pair.notes)
            )


def _alone(
    found: DiffReport,
    of: Callable[..., Iterable[DiffSide]],
    recordings: Sequence[str],
) -> Iterator[LoneCompile]:
    for pair in found.recordings:
        for side in of(pair):
            row = side.compile
            yield LoneCompile(row.place, row.frame_name, row.status)
    for address in recordings:
        yield LoneCompile(f"#{address.rpartition('#')[2]}")


# -- rows -----------------------------------------------------------------------------------------


def _pair(pair: CompileDiff) -> ComparedPair:
    one, other = pair.left.compile, pair.right.compile
    first = next((row.differences[0] for row in pair.differing if row.layer == "events"), None)
    return ComparedPair(
        one.place, other.place, one.frame_name, one.frame_file, one.frame_line,
        (one.status, other.status), (_ms(pair.left), _ms(pair.right)),
        [layer.layer for layer in pair.differing], None if first is None else _first(first),
    )  # fmt: skip


def _first(found: LayerDifference) -> ComparedPlace:
    """Return the place in which the events part first, its lines cut for a cell of the listing."""
    left, right = parting_lines(found.left, found.right, _CELL)
    return _place(replace(found, left=left, right=right))


def _ms(side: DiffSide) -> float | None:
    spent = compile_ns(side.compile, queries.stages(side.store, side.compile))
    return None if spent is None else spent / 1e6


def _place(found: LayerDifference) -> ComparedPlace:
    left, right = parting_texts(found.left, found.right, _LONGEST)
    return ComparedPlace(
        found.what[:_LONGEST], left, right,
        found.left_at, found.right_at, list(found.before),
    )  # fmt: skip


def _layer(found: LayerDiff) -> ComparedLayer:
    return ComparedLayer(
        found.layer, found.left, found.right, len(found.differences),
        [_place(each) for each in found.differences[:_MOST_PLACES]], found.note,
    )  # fmt: skip


# -- details, as far as there is room -------------------------------------------------------------


def _with_details(
    document: ComparisonDocument, pairs: Sequence[CompileDiff], max_bytes: int
) -> ComparisonDocument:
    room = max_bytes - PAGE_BYTES - len(json_block(encoded(document)))
    packer, rows = Packer(max(room, 0)), list(document.pairs)
    without = 0
    for at in sorted(range(len(rows)), key=lambda at: not rows[at].differing):
        details = packer.add_if_room(partial(_details, pairs[at]))
        without += details is None
        rows[at] = msgspec.structs.replace(rows[at], details=details)
    note = f"The details of {without} of {len(rows)} pairs have no room in this page: --max-size."
    notes = [note] if without else []
    return msgspec.structs.replace(document, pairs=rows, packed=packer.parts, notes=notes)


def _details(pair: CompileDiff) -> PairDetails:
    notes: list[str] = []
    return PairDetails(
        [_layer(layer) for layer in pair.layers],
        _readable(pair, notes, lambda: list(compared_texts(pair.left, pair.right))),
        _readable(pair, notes, lambda: _keys(pair.left, pair.right)),
        notes,
    )


def _readable(pair: CompileDiff, notes: list[str], read: Callable[[], list[_Read]]) -> list[_Read]:
    """Return the result of `read`, or [] with a note if it can't be read.

    A compile that looked into no cache gets no note.
    """
    try:
        return read()
    except DamagedStore as error:
        pair.left.store.skip(error)
        notes.append(str(error))
    except UnsupportedError:
        pass  # No cache was asked: nothing to show, and nothing is missing.
    except TorchreelError as error:
        notes.append(str(error))
    return []


def _keys(left: DiffSide, right: DiffSide) -> list[ComparedKey]:
    other = (right.store, _address(right))
    return [key_of(story) for story in why_cache(left.store, _address(left), other)]


def _address(side: DiffSide) -> Address:
    row = side.compile
    return Address(
        side.store.target, row.recording_id, row.compile_id, row.attempt, None, row.generation
    )

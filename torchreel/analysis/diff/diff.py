"""`diff`: two compiles, recordings or stores.

Lives here: from two addresses to a report.  Not here: the layers (`layers`), the pairing (`pairs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchreel.analysis.diff.layers import facts
from torchreel.analysis.diff.layers.table import ENVIRONMENT, LAYERS, REPLAYED, SUMMARISED, chosen
from torchreel.analysis.diff.pairs import (
    Selected,
    counterpart,
    pair_compiles,
    pair_recordings,
    select,
)
from torchreel.analysis.diff.report import (
    CompileDiff,
    DiffReport,
    DiffSide,
    LayerDiff,
    RecordingDiff,
    modes_differ,
    place,
)
from torchreel.errors import UsageError
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.records import Compile, Recording

Place = tuple[Store, Address]


def diff(left: Place, right: Place, only: Sequence[str] = ()) -> DiffReport:
    """Compare the compiles of two addresses, layer by layer; `only` names the layers.

    A compile against a recording or a store is compared with the compile of the same frame there.
    Raises UsageError for an unknown layer, and when there is nothing to compare: no compile on a
    side, or nothing of the chosen layers on either.
    """
    layers = chosen(only)
    ours, theirs = select(*left), select(*right)
    if ours.one and not theirs.one:
        theirs = counterpart(ours.recordings[0][1][0], theirs, right[1])
    elif theirs.one and not ours.one:
        ours = counterpart(theirs.recordings[0][1][0], ours, left[1])
    report = _report(ours, theirs, layers)
    if not _compared(report):
        raise UsageError(
            f"Neither {left[1]} nor {right[1]} holds anything of {', '.join(layers)}: nothing was "
            "compared, so there is nothing to say."
        )
    return report


def _compared(report: DiffReport) -> bool:
    return not report.same or any(
        layer.compared for pair in report.recordings for layer in pair.layers
    )


def _report(left: Selected, right: Selected, layers: Sequence[str]) -> DiffReport:
    ours, theirs = left.compiles, right.compiles
    pairs = pair_recordings(left.rows, right.rows)
    made = (
        _recordings(
            (left.store, one, ours[one.id]), (right.store, other, theirs[other.id]), layers,
            named=left.one,
        )
        for one, other in pairs.both
    )  # fmt: skip
    return DiffReport(
        tuple(made),
        tuple(place(left.store, row) for row in pairs.only_left),
        tuple(place(right.store, row) for row in pairs.only_right),
    )


_Part = tuple[Store, Recording, Sequence[Compile]]


def _recordings(left: _Part, right: _Part, layers: Sequence[str], *, named: bool) -> RecordingDiff:
    """Return two recordings; the compiles are paired, or are the ones that were named."""
    ours, theirs = left[:2], right[:2]
    if (left[1].kind == "replay") != (right[1].kind == "replay"):
        layers = [name for name in layers if name in REPLAYED]
    pairs = pair_compiles(left[2], right[2])
    both = ((left[2][0], right[2][0]),) if named else pairs.both
    return RecordingDiff(
        ours,
        theirs,
        facts.environment(ours, theirs) if ENVIRONMENT in layers else None,
        tuple(
            compare_compiles(DiffSide(left[0], one), DiffSide(right[0], other), layers)
            for one, other in both
        ),
        () if named else tuple(DiffSide(left[0], row) for row in pairs.only_left),
        () if named else tuple(DiffSide(right[0], row) for row in pairs.only_right),
        (*_lost(*ours), *_lost(*theirs)),
    )


def compare_compiles(left: DiffSide, right: DiffSide, layers: Sequence[str]) -> CompileDiff:
    """Compare two compiles in the chosen layers, as far as both can have something of them."""
    has_one_summary = modes_differ(left, right) and (left.is_summary or right.is_summary)
    found = (
        LayerDiff(name, 0, 0, note="flight mode keeps a summary of a compile that was fast")
        if has_one_summary and name not in SUMMARISED
        else LAYERS[name](left, right)
        for name in layers
        if name in LAYERS
    )
    return CompileDiff(left, right, tuple(found))


def _lost(store: Store, recording: Recording) -> Iterator[str]:
    """Yield a note on each loss of a recording: lost events can't be compared."""
    for item in queries.lost(store, recording.id):
        yield f"{place(store, recording)} lost {item.count} of {item.place}: {item.reason}"

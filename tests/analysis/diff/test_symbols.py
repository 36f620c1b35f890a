"""The symbols of two compiles, told apart by where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.rows import add_compile, add_event, add_recording
from torchreel.analysis.diff.layers import symbols as layer
from torchreel.analysis.diff.report import DiffSide, LayerDifference
from torchreel.store import Json, Store, queries

SYMBOLS = 12
CREATED: dict[str, Json] = {"assumptions": [], "pending": False}
REPLACED: dict[str, Json] = {"old": None, "reason": "find"}


def test_symbols_are_put_beside_each_other_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.db"
    with Store.open(path, create=True) as store, store.writer() as w:
        number, seq = add_recording(w), 0
        for place, limit in enumerate((8, 9)):
            row = add_compile(w, number, f"{place}/0")
            made: Json = {"env": place, "settings": {}, "validation": False}
            events: list[tuple[str, Json]] = [("shape_env.create", made)]
            for symbol in range(SYMBOLS):
                at: dict[str, Json] = {"env": place, "symbol": f"u{symbol + place}"}
                events += [
                    ("unbacked.create", {**at, "range": [0, 64], **CREATED}),
                    ("shape_env.replacement", {**at, "expr": limit, **REPLACED}),
                ]
            for kind, data in events:
                seq += 1
                add_event(w, number, seq, compile_id=row, kind=kind, data=data)
    called = []

    def by_source(table):  # type: ignore[no-untyped-def]
        called.append(table)
        return read_by_source(table)

    read_by_source = layer._by_source
    monkeypatch.setattr(layer, "_by_source", by_source)
    with Store.open(path) as store:
        one, other = (DiffSide(store, row) for row in queries.compiles(store, 1))
        found = layer.symbols(one, other).differences
    assert [each.what for each in found] == [f"unbacked symbol {n}" for n in range(SYMBOLS)]
    assert isinstance(found[0], LayerDifference)
    assert ("replacement 8" in found[0].left, "replacement 9" in found[0].right) == (True, True)
    assert len(called) == 2

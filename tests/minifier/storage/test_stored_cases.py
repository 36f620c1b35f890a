"""Cases that a damaged store holds: named, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.minifier.hand_made import chain
from torchreel.errors import DamagedStore
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.storage.stored_cases import read_case
from torchreel.store import Store
from torchreel.store.documents.jsontypes import Json, exact_json, parse_json


@pytest.mark.parametrize(
    "document",
    [b"[" * 300 + b"]" * 300, b"no JSON", exact_json(["a list"]), exact_json({"kind": "other"})],
    ids=["nested", "text", "list", "another kind"],
)
def test_a_document_that_is_no_case_is_damage(tmp_path: Path, document: bytes) -> None:
    with Store.open(tmp_path / "run.db", create=True) as store, store.writer() as writer:
        row: dict[str, Json] = {"digest": "d", "call_nodes": 1, "document": writer.blob(document)}
        writer.put("cases", failure_id=None, **row)
    with (
        Store.open(tmp_path / "run.db") as store,
        pytest.raises(DamagedStore, match="holds a case that is none"),
    ):
        read_case(store, "d")


def test_a_case_that_is_not_there_is_none(tmp_path: Path) -> None:
    with Store.open(tmp_path / "run.db", create=True) as store:
        assert read_case(store, "d") is None


@pytest.mark.parametrize(
    "case", [chain(["sin", "cos"]), SourceCase("f(1)")], ids=["graph", "source"]
)
@pytest.mark.parametrize("value", [None, [[], [[]]], "text", 1.5, {"k": []}, 2**80])
def test_a_case_with_another_type_in_a_place_is_damage(
    tmp_path: Path, case: AnyCase, value: Json
) -> None:
    """Or is read as one without that; it never ends in another exception."""
    document = parse_json(case.to_bytes())
    assert isinstance(document, dict)
    with Store.open(tmp_path / "run.db", create=True) as store, store.writer() as writer:
        for key in document:
            changed = writer.blob(exact_json({**document, key: value}))
            row: dict[str, Json] = {"digest": key, "call_nodes": 1, "document": changed}
            writer.put("cases", failure_id=None, **row)
    refused = []
    with Store.open(tmp_path / "run.db") as store:
        for key in document:
            try:
                read_case(store, key)
            except DamagedStore:
                refused.append(key)
    assert "repeats" in refused

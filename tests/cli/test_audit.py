"""`torchreel audit`, and what `torchreel share` does without torch: exit statuses and sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing
from torchreel.commands.views import audit as view
from torchreel.sharing.audit.audit import AuditFinding, AuditReport
from torchreel.sharing.pseudonyms import write_map


def test_a_recording_has_findings_by_place(run: Run, empty: Path) -> None:
    result = run("audit", failing(empty))
    assert result.status == 1, result
    assert "recordings.argv (" in result.out
    assert f"{empty}: " in result.out.splitlines()[-1]
    found = json.loads(run("audit", empty, "--json").out)
    assert {"kind", "place", "text"} == set(found["findings"][0])


def test_of_many_places_a_few_findings_of_each_kind_are_shown(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchreel.commands.views.audit._MOST_PLACES", 3)
    result = run("audit", failing(empty))
    assert result.status == 1, result
    lines = result.out.splitlines()
    assert len([line for line in lines if line.startswith("path: ")]) == 1
    assert "recordings.argv (" not in result.out
    assert result.err.splitlines()[-1] == f"next: torchreel audit --all {empty}"
    everything = run("audit", empty, "--all").out
    assert "recordings.argv (" in everything
    assert len(everything) > len(result.out)


@pytest.mark.parametrize("content", [b"", b"no store", b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_can_not_be_read_is_said_in_one_sentence(
    run: Run, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "bundle.db"
    path.write_bytes(content)
    for verb in ("audit", "share"):
        result = run(verb, path)
        assert result.status == 3, result
        assert result.out == ""
        assert "Traceback" not in result.err
        assert len(result.err.strip().splitlines()) == 1


def test_an_answer_is_read_back(run: Run, tmp_path: Path) -> None:
    names, answer = tmp_path / "b.map.json", tmp_path / "answer.txt"
    write_map(names, {"x1": "patient"}, "b.db", force=False)
    answer.write_text("x1 is empty\n")
    assert run("share", answer, "--read-back", names).out == "patient is empty\n"
    assert run("share", answer, "--read-back", answer).status == 3
    assert run("share", tmp_path / "none.txt", "--read-back", names).status == 2


def test_one_finding_of_one_value_is_counted_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = AuditReport("run.db", (AuditFinding("secret", "recordings.argv", "x"),), 1, ())
    assert view.report(found, everything=False, json=False) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "run.db: 1 finding (looked at 1 value)"

"""A torch newer than all that torchreel knows: what can be attached is recorded."""

from pathlib import Path

import pytest
import torch
import torch._higher_order_ops.base_hop as base_hop

import torchreel
from torchreel.doctor import Finding, examine
from torchreel.recorder.failing_open import losses
from torchreel.store import Store, queries

GONE = "check_input_alias_and_mutation_return_outputs"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this torch pass for 2.16.0, and take away a name that a probe stands in front of."""
    monkeypatch.setattr(torch.version, "__version__", "2.16.0")
    monkeypatch.delattr(base_hop, GONE)


def attach_points(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.what.startswith(("attach", "torch."))]


@pytest.mark.usefixtures("newer")
def test_a_recording_has_everything_else_and_says_nothing_of_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(3))
    assert "lost" not in capfd.readouterr().err
    with Store.open(tmp_path / "run.db") as store:
        (recording,) = queries.recordings(store)
        (compile,) = queries.compiles(store, recording.id)
        assert queries.lost(store, recording.id) == []
        assert [row.stage for row in queries.stages(store, compile)][:1] == ["dynamo"]
        assert len(queries.graphs(store, compile)) > 1


@pytest.mark.usefixtures("newer")
def test_doctor_says_in_one_line_what_is_not_there(tmp_path: Path) -> None:
    findings = examine(str(tmp_path / "run.db"))
    name = f"{base_hop.__name__}.{GONE}"
    others = [row for row in attach_points(findings) if row.state != "ok"]
    assert [(row.what, row.state) for row in others] == [("attach points", "warning")]
    assert name in others[0].found
    assert "not in torch 2.16.0" in others[0].found
    (about,) = (row for row in findings if row.what == "torch")
    assert about.state == "ok"
    assert "2.16.0" in about.found
    assert "2.12 to 2.15" in about.found


def test_doctor_says_nothing_of_names_of_other_releases(tmp_path: Path) -> None:
    findings = examine(str(tmp_path / "run.db"))
    assert {row.state for row in attach_points(findings)} == {"ok"}


def test_a_name_that_a_known_release_should_have_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(base_hop, GONE)
    findings = attach_points(examine(str(tmp_path / "run.db")))
    assert [row.what for row in findings if row.state == "missing"] == [
        f"{base_hop.__name__}.{GONE}"
    ]
    losses.reset()
    with torchreel.record(tmp_path / "other.db"):
        torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3))
    with Store.open(tmp_path / "other.db") as store:
        (recording,) = queries.recordings(store)
        assert [row.place for row in queries.lost(store, recording.id)] == [
            f"{base_hop.__name__}.{GONE}"
        ]

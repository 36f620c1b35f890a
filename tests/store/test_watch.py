"""Several stores pushed by one command: what is wrong with one of them stops no other."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.store.pushing import fill
from tests.store.rows import add_recording
from torchreel.errors import DamagedStore, StoreError
from torchreel.store import Store
from torchreel.store.failures.failure_kinds import FailureKind
from torchreel.store.sending import push, watch
from torchreel.store.sending.push import PushReport
from torchreel.store.sending.target import send_recording
from torchreel.store.sending.watch import push_all, push_until_stopped


class Reports:
    """What a push said, by the name of the store."""

    def __init__(self) -> None:
        self.reports: dict[str, PushReport] = {}
        self.refusals: dict[str, str] = {}
        self.waits: list[str] = []

    def sent(self, source: str, number: int, new: int) -> None:
        """Note nothing: the report says it."""

    def pushed(self, source: str, report: PushReport) -> None:
        """Note the report."""
        self.reports[Path(source).name] = report

    def refused(self, source: str, error: StoreError) -> None:
        """Note the reason."""
        self.refusals[Path(source).name] = str(error)

    def waiting(self, error: StoreError) -> None:
        """Note the reason."""
        self.waits.append(str(error))


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Two stores of one recording each."""
    return [str(fill(tmp_path / f"{n}.db", range(n, n + 1))) for n in range(2)]


def test_a_store_that_can_t_be_written_to_stops_no_other(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(paths[0], write=True) as store, store.writer() as w:
        add_recording(w, run="died", pid=2**22 + 1, status="running")

    def full(store: Store, *, only_certain: bool) -> int:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(push, "settle", full)
    said = Reports()
    push_all(paths, str(tmp_path / "to.db"), said)
    assert [len(each.sent) for each in said.reports.values()] == [1, 1]
    assert said.reports["0.db"].running == 1


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 9, 16, 25])
@pytest.mark.parametrize("method", ["rows", "read_blob"])
def test_a_disk_that_gives_up_at_any_read_stops_no_other(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, number: int
) -> None:
    works = getattr(Store, method)
    reads = itertools.count(1)

    def fails(store: Store, what: object) -> object:
        if store.target == paths[0] and next(reads) >= number:
            raise StoreError("The disk gave up.")
        return works(store, what)

    monkeypatch.setattr(Store, method, fails)
    said = Reports()
    push_all(paths, str(tmp_path / "to.db"), said)
    assert len(said.reports["1.db"].sent) == 1
    report = said.reports.get("0.db", PushReport())
    refused = [said.refusals.get("0.db", ""), *report.refused]
    assert ["The disk gave up." in "".join(refused), len(report.sent)] in ([True, 0], [False, 1])


def test_kinds_that_can_t_be_read_are_no_fault_of_the_target(
    paths: list[str], tmp_path: Path
) -> None:
    def fails(source: Store, number: int) -> Mapping[int, FailureKind]:
        if source.target == paths[0]:
            raise StoreError("The disk gave up.")
        return {}

    said = Reports()
    push_all(paths, str(tmp_path / "to.db"), said, fails)
    assert [len(each.sent) for each in said.reports.values()] == [0, 1]
    assert said.reports["0.db"].refused == ["recording 1: The disk gave up."]


@pytest.mark.parametrize("wait", [0.0, 1000.0])
def test_what_the_other_store_refused_is_sent_later(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """Its reason may pass, in a while or until the end."""
    send = send_recording

    def refuse_first(*arguments: Any) -> int | None:
        monkeypatch.setattr(push, "send_recording", send)
        raise DamagedStore("A table is being changed.")

    class Stopping(Reports):
        is_stopped = False

        def pushed(self, source: str, report: PushReport) -> None:
            super().pushed(source, report)
            if (report.sent or wait) and not self.is_stopped:
                self.is_stopped = True
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(push, "send_recording", refuse_first)
    monkeypatch.setattr(watch, "_LONGEST_WAIT", wait)
    said = Stopping()
    push_until_stopped(paths[:1], str(tmp_path / "to.db"), 0.01, said)
    assert len(said.reports["0.db"].sent) == 1

"""Switching a recording off from outside; where its file goes."""

import logging
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

import torchreel
from tests.recorder import programs
from tests.recorder.conftest import RecordedLog
from torchreel.errors import UsageError
from torchreel.recorder import attach, control, failing_open
from torchreel.recorder.control import KillSwitch
from torchreel.recorder.event_log import log
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings, parse_age, parse_size
from torchreel.store import Store, queries


def compile_one(n: int) -> None:
    torch.compile(lambda x: x + n, backend="eager")(torch.ones(2))


def wait_until_off() -> float:
    started = time.monotonic()
    while attach.active() is not None and time.monotonic() - started < 20:
        time.sleep(0.02)
    assert attach.active() is None
    return time.monotonic() - started


def test_a_file_that_appears_switches_it_off(path: Path) -> None:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep()
    failing_open.log.addHandler(handler)
    try:
        with torchreel.record(path):
            compile_one(1)
            Path(f"{path}.off").touch()
            wait_until_off()
            torch._dynamo.reset()
            compile_one(2)
    finally:
        failing_open.log.removeHandler(handler)
    with Store.open(path) as store:
        event_log = RecordedLog(store)
        assert [row.status for row in event_log.compiles] == ["ok"]
        assert event_log.recording.status == "done"
        (lost,) = queries.lost(store, 1)
    assert (lost.reason, lost.place) == ("switched off", "recorder")
    assert lost.message == f"{path}.off is there"
    assert len([r for r in records if "is switched off" in r.getMessage()]) == 1


def test_it_is_looked_for_at_the_next_compile_when_nothing_was_under_way(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(control.OFF_FILE_VARIABLE, str(tmp_path / "stop"))
    monkeypatch.setattr(control, "_ROUND", 3600)
    with torchreel.record(path):
        compile_one(1)
        (tmp_path / "stop").touch()
        torch._dynamo.reset()
        compile_one(2)
        assert attach.active() is None
        torch._dynamo.reset()
        compile_one(3)
    with Store.open(path) as store:
        assert [row.status for row in RecordedLog(store).compiles] == ["ok", "ok"]


def test_a_file_that_comes_before_the_first_compile_waits_for_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_ROUND", 3600)
    asked: list[object] = []
    monkeypatch.setattr(log.EventLog, "begin", lambda self: asked.append(self))
    with torchreel.record(path):
        Path(f"{path}.off").touch()
        compile_one(1)
        assert attach.active() is None
    assert asked == []


@pytest.mark.slow
def test_a_file_that_is_there_from_the_start_leaves_no_trace(path: Path) -> None:
    Path(f"{path}.off").touch()
    assert programs.run("torch.compile(lambda x: x, backend='eager')(torch.ones(2))", path) == 0
    with Store.open(path) as store:
        assert [len(queries.compiles(store, r.id)) for r in queries.recordings(store)] == [0]


SIGNALLED = """
import signal
f = torch.compile(lambda x: x + 1, backend="eager")
f(torch.ones(2))
os.kill(os.getpid(), signal.SIGUSR2)
torch._dynamo.reset()
f(torch.ones(2))
torch._dynamo.reset()
f(torch.ones(2))
print("alive")
"""


@pytest.mark.slow
def test_a_signal_switches_it_off(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", programs.PRELUDE + SIGNALLED]
    assert run_recorded(command, path, settings=Settings(off_signal="SIGUSR2")) == 0
    assert "alive" in capfd.readouterr().out
    with Store.open(path) as store:
        assert 1 <= len(RecordedLog(store).compiles) <= 2
        (lost,) = queries.lost(store, 1)
    assert (lost.reason, lost.message) == ("switched off", "SIGUSR2 came")


def test_a_handler_of_the_program_keeps_its_signal() -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGUSR2)
        KillSwitch(None, lambda reason: None).listen("USR2")
        assert signal.getsignal(signal.SIGUSR2) is mine
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_the_signal_is_given_back() -> None:
    switch = KillSwitch(None, lambda reason: None)
    switch.listen("SIGUSR2")
    assert signal.getsignal(signal.SIGUSR2) == switch._receive
    switch.stop_listening()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_target_may_name_the_rank_and_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    with torchreel.record(tmp_path / "run-{rank}-{pid}.db"):
        compile_one(1)
    expected = tmp_path / f"run-3-{os.getpid()}.db"
    assert sorted(p for p in tmp_path.iterdir() if p.suffix == ".db") == [expected]
    with Store.open(expected) as store:
        assert RecordedLog(store).recording.rank == 3


def test_settings_travel_through_the_environment() -> None:
    settings = Settings(1.5, 30.0, 5 << 20, 3600.0, 0.25, "all", ("a b", "c"), "SIGUSR2")
    assert Settings.from_environment(settings.variables()) == settings
    assert Settings.from_environment({}) == Settings()
    assert Settings().variables() == {}
    assert Settings.from_environment({"TORCHREEL_SAMPLE": "0"}).sample == 0


@pytest.mark.parametrize(
    ("text", "size"), [("1000000", 1000000), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1.5k", 1536)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "age"), [("90", 90), ("12h", 43200), ("30d", 2592000)])
def test_ages(text: str, age: float) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize(
    "wrong",
    [
        {"TORCHREEL_MAX_BYTES": "much"}, {"TORCHREEL_MAX_AGE": "old"}, {"TORCHREEL_SAMPLE": "2"},
        {"TORCHREEL_SAMPLE": "x"}, {"TORCHREEL_REDACT": "some"}, {"TORCHREEL_MAX_BYTES": "10"},
        {"TORCHREEL_REDACT_PATTERN": "("}, {"TORCHREEL_OFF_SIGNAL": "SIGNO"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Settings.from_environment(wrong)


def test_a_variable_is_not_read_where_its_setting_is_given() -> None:
    found = Settings.from_environment({"TORCHREEL_SAMPLE": "x"}, {"sample": 0.5, "redact": None})
    assert found == Settings(sample=0.5)

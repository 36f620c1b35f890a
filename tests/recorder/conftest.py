"""A recording to look at: `recording` compiles in this process and opens the store afterwards."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config  # before the variables of the programs are set

import torchreel
from tests.recorder import programs
from torchreel.recorder import failing_open
from torchreel.store import Store, queries
from torchreel.store.records import Compile


@pytest.fixture(autouse=True)
def _fresh_dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles begin at 0/0 in each test, and no fault is injected after it."""
    for name, value in programs.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    torch._dynamo.reset()
    yield
    failing_open.inject = None
    torchreel.uninstall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's store goes."""
    return tmp_path / "run.db"


class RecordedLog:
    """One recording, read back."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.recording = queries.recordings(store)[-1]

    @property
    def compiles(self) -> list[Compile]:
        return queries.compiles(self.store, self.recording.id)

    @property
    def compile(self) -> Compile:
        (only,) = self.compiles
        return only

    def stages(self, compile: Compile | None = None) -> list[tuple[str, str, str]]:
        found = queries.stages(self.store, compile or self.compile)
        return [(row.stage, row.partition, row.status) for row in found]

    def graphs(self, compile: Compile | None = None) -> list[tuple[str, str]]:
        found = queries.graphs(self.store, compile or self.compile)
        return [(row.stage, row.partition) for row in found]

    def lost(self) -> list[tuple[str, str]]:
        return [(row.reason, row.place) for row in queries.lost(self.store, self.recording.id)]


Record = Callable[[Callable[[], object]], RecordedLog]


@pytest.fixture
def record(path: Path) -> Iterator[Record]:
    """Record what a function compiles; it may fail."""
    opened: list[Store] = []

    def run(program: Callable[[], object]) -> RecordedLog:
        with torchreel.record(path), contextlib.suppress(Exception):
            program()
        opened.append(Store.open(path))
        return RecordedLog(opened[-1])

    yield run
    for store in opened:
        store.close()

"""The command line, called in this process, on stores that are written row by row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchreel import cli
from torchreel.store import Store


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line as the console script does."""

    def run(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["torchreel", *map(str, words)])
        try:
            cli.main()
            status: object = 0
        except SystemExit as ended:
            status = ended.code
        captured = capsys.readouterr()
        return Result(status if isinstance(status, int) else 1, captured.out, captured.err)

    return run


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The file of a store without rows."""
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    return path

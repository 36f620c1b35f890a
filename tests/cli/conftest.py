"""The command line, called in this process, on stores that are written row by row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.on_server import OnServer
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
def on_server(request: pytest.FixtureRequest) -> OnServer | None:
    """With `--database postgres`, the stores that a command reads are on a server."""
    if request.config.getoption("--database") == "sqlite":
        return None
    return OnServer(request.getfixturevalue("server"))


@pytest.fixture
def a_file(on_server: OnServer | None) -> None:
    """What a test is about is the file of a store, or its path in something that is written."""
    if on_server is not None:
        pytest.skip("the test is about the file of a store, and this store is on a server")


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    on_server: OnServer | None,
) -> Run:
    """Call the command line as the console script does."""

    def run(*words: object) -> Result:
        given = [str(word) for word in words] if on_server is None else on_server.words(words)
        monkeypatch.setattr(sys, "argv", ["torchreel", *given])
        try:
            cli.main()
            status: object = 0
        except SystemExit as ended:
            status = ended.code
        captured = capsys.readouterr()
        out, err = captured.out, captured.err
        if on_server is not None:
            out, err = on_server.text(out), on_server.text(err)
        return Result(status if isinstance(status, int) else 1, out, err)

    return run


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The file of a store without rows."""
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    return path

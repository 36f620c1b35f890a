"""Stores for the tests of the store: real files, made once and copied."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchreel.store import Store


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store without rows; copy it, don't write to it."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    Store.open(path, create=True).close()
    return path


@pytest.fixture
def path(empty_store: Path, tmp_path: Path) -> Path:
    """The file of an empty store of the test's own."""
    return Path(shutil.copy(empty_store, tmp_path / "run.db"))


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """That store, open for writing."""
    with Store.open(path, write=True) as opened:
        yield opened

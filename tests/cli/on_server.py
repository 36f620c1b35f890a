"""The tests of the command line with `--database postgres`: each store is on a server.

Every row of a file goes to a database of its own as it is, numbers included, when a command names
the file; what the command prints of the URL is the path again.  A file that no server can hold, for
it is damaged, skips the test.
"""

from __future__ import annotations

import os

import pytest
from sqlalchemy import select, text

from tests.server import Server
from torchreel.errors import StoreError
from torchreel.store import Store
from torchreel.store.files.sqlite_files import APPLICATION_ID
from torchreel.store.schema import metadata
from torchreel.store.sending.rows import read_rows

_WRITING = ("record", "import", "push", "prepare")
_OUTPUTS = ("-o", "--output", "--to", "--import")


class OnServer:
    """Stores of a test, by their files."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._urls: dict[tuple[object, ...], str] = {}
        self._shown: dict[str, str] = {}

    def words(self, words: tuple[object, ...]) -> list[str]:
        """The words of a command, with URLs for the stores that it reads."""
        found = [str(word) for word in words]
        if not found or found[0] in _WRITING:
            return found
        before = ["", *found]
        return [
            word if previous in _OUTPUTS else self._word(word)
            for previous, word in zip(before, found, strict=False)
        ]

    def text(self, printed: str) -> str:
        """What a command printed, with the paths of its stores."""
        for url, path in sorted(self._shown.items(), reverse=True):
            printed = printed.replace(url, path)
        return printed

    def _word(self, word: str) -> str:
        path, mark, place = word.partition("#")
        if not _is_store(path):
            return word
        return f"{self._url(path)}{mark}{place}"

    def _url(self, path: str) -> str:
        stamp = tuple(
            (status.st_mtime_ns, status.st_size, status.st_ino)
            for name in (path, f"{path}-wal")
            if os.path.exists(name) and (status := os.stat(name))
        )
        key = (os.path.realpath(path), *stamp)
        if key not in self._urls:
            url = self._server.new_database("torchreel")
            try:
                _copy(path, url)
            except StoreError as error:
                pytest.skip(f"no server can hold this store: {error}")
            self._urls[key] = url
            self._shown[url] = path
        return self._urls[key]


def _is_store(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except (OSError, ValueError):
        return False
    return header[68:72] == APPLICATION_ID.to_bytes(4)


def _copy(path: str, url: str) -> None:
    with (
        Store.open(path) as source,
        Store.open(url, write=True) as target,
        target.writer() as w,
    ):
        for table in metadata.sorted_tables:
            rows = read_rows(source, select(table))
            w.add_many(table.name, rows)
            if rows and "id" in table.c:
                w.connection.execute(
                    text(f"SELECT setval('{table.name}_id_seq', max(id)) FROM {table.name}")
                )

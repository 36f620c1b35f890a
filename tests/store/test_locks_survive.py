"""A store that is opened twice in one process keeps its locks: the file is never damaged."""

import sqlite3
import subprocess
import sys
from pathlib import Path

from torchreel.store.database import Store

_WRITE_AND_CLOSE = """
import sys
from torchreel.store.database import Store
with Store.open(sys.argv[1], write=True) as store:
    for _ in range(20):
        with store.writer() as writer:
            writer.blob(bytes(range(256)) * 200 + bytes([_]))
"""


def test_another_process_cannot_reset_the_log_of_a_store_opened_twice(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.open(path, create=True) as store:
        with store.writer() as writer:
            writer.blob(b"first" * 5000)
        Store.open(path).close()
        Store.open(path, write=True).close()
        subprocess.run([sys.executable, "-c", _WRITE_AND_CLOSE, str(path)], check=True)
        # With its locks gone, this process would not know that the other one wrote.
        assert Path(f"{path}-wal").exists(), "the other process took the log away: locks were lost"
        for number in range(20):
            with store.writer() as writer:
                writer.blob(number.to_bytes(2, "big") * 30000)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

"""A hole in the rules for graphs, made on purpose: named with `--import`, it stands for one.

Where a graph is rebuilt, in the child of a replay and in that of a reduction, whatever the rules
would have refused is called: it leaves canaries in the folder of the variable HOLE_OUTSIDE.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchreel import sandbox
from torchreel.replay.child import restore

OUTSIDE = Path(os.environ["HOLE_OUTSIDE"])
# Where this is imported: what comes later has no such rights.
(OUTSIDE / "imported").touch()


def _connect() -> None:
    with socket.create_connection(("127.0.0.1", int(os.environ["HOLE_PORT"]))) as connection:
        connection.sendall(b"canary")


HARM: tuple[Callable[[], object], ...] = (
    lambda: (OUTSIDE / "written").touch(),
    lambda: os.system(f"touch {OUTSIDE}/by_shell"),
    lambda: subprocess.run([sys.executable, "-c", f"open({str(OUTSIDE / 'by_python')!r}, 'w')"]),
    lambda: ctypes.CDLL(None).system(f"touch {OUTSIDE}/by_c".encode()),
    lambda: (OUTSIDE / "run.db").write_text("overwritten"),
    _connect,
)


def _restore(doc: Any, **options: bool) -> Any:
    if not sandbox.is_confined() and not os.environ.get("HOLE_TRUSTED"):
        return original(doc, **options)  # the warm worker itself, whose graph is our own
    for harm in HARM:
        with contextlib.suppress(OSError):
            harm()
    if os.environ.get("HOLE_RAISES"):
        (OUTSIDE / "written").touch()
    return original(doc, **options)


original, restore.restore = restore.restore, _restore

"""A process that pushes a store: of `benchmarks.fleet`, which kills it."""

from __future__ import annotations

import os
import time

from torchreel.analysis.triage.failure_kinds import kinds_of
from torchreel.errors import StoreError
from torchreel.store import Store
from torchreel.store.sending.push import push_path


def push_until_done(path: str, url: str) -> None:
    """Push a store, as often as it takes.

    In a session of its own: Linux shares the processors between sessions, as between machines.
    """
    os.setsid()
    while True:
        try:
            with Store.open(url, write=True) as target:
                if not push_path(path, target, kinds_of=kinds_of).refused:
                    return
        except StoreError:
            time.sleep(0.2)

"""Records the programs of the examination, each in a fork of a process that has torch imported."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.share.programs import Planted

STORE = "run.db"
_SECONDS = 400


def record(folder: Path, wanted: Sequence[Planted]) -> None:
    """Record the programs that are not in the folder yet."""
    missing = [one for one in wanted if not (folder / one.variant.name / STORE).exists()]
    if not missing:
        return
    import torch

    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.compile(lambda x: x.sin() + 1)(torch.ones(2))
    for number, one in enumerate(missing, 1):
        print(f"recorded {number}/{len(missing)} {one.variant.name}: {_in_fork(folder, one)}")
        sys.stdout.flush()


def _in_fork(folder: Path, planted: Planted) -> int:
    from torchreel.store import Store
    from torchreel.store.post_mortem import settle

    place = folder / planted.variant.name
    shutil.rmtree(place, ignore_errors=True)
    file = place / f"{planted.canaries['folder']}.py"
    file.parent.mkdir(parents=True)
    file.write_text(planted.variant.text)
    pid = os.fork()
    if pid == 0:
        _run(file, place / STORE)
    _, status = os.waitpid(pid, 0)
    if (place / STORE).exists():
        with Store.open(place / STORE, write=True) as store:
            settle(store)
    return status


def _run(file: Path, store: Path) -> None:
    """Run a program as a process of its own would; never returns."""
    import torchreel

    status = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(_SECONDS)
        sys.argv, sys.path[0] = [str(file)], str(file.parent)
        with torchreel.record(store):
            runpy.run_path(str(file), run_name="__main__")
        status = 0
    finally:
        os._exit(status)

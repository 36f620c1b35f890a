"""Stores that other releases of torch recorded are read, replayed and reduced by this one.

`make compat` collects them in a folder; without it there are none.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.compat.programs import PLANTED, STORES
from tests.compat.test_systems import calls_of, compiles_of, worker
from torchreel.errors import UnsupportedError
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.replay import replay
from torchreel.store.database import Store

__all__ = ["worker"]
HERE = torch.__version__.partition("+")[0]
FOLDER = os.environ.get(STORES, "")
OTHERS = [path for path in sorted(Path(FOLDER).glob("*/recorded.db")) if path.parent.name != HERE]

pytestmark = [
    pytest.mark.skipif(not OTHERS, reason="no stores of other releases: see `make compat`"),
    pytest.mark.parametrize("other", OTHERS, ids=lambda path: path.parent.name),
]


def copied(path: Path, folder: Path) -> Path:
    """Copy a store, to be written to."""
    return Path(shutil.copy(path, folder / path.name))


@pytest.mark.parametrize("words", [["ls"], ["show"]])
def test_it_is_listed_and_shown(words: list[str], other: Path) -> None:
    command = [sys.executable, "-m", "torchreel.cli", *words, str(other)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_it_is_compared_with_one_of_this_release(other: Path) -> None:
    mine = other.parent.parent / HERE / "recorded.db"
    command = [sys.executable, "-m", "torchreel.cli", "diff", str(other), str(mine)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # they differ
    assert "differ" in done.stdout + done.stderr


def test_a_replay_says_what_the_release_changed(other: Path, tmp_path: Path) -> None:
    with Store.open(copied(other, tmp_path), write=True) as store:
        (compile,) = compiles_of(store, "guards")
        with pytest.raises(UnsupportedError, match="--allow version"):
            replay(store, compile, "graph")
        allowed = replay(store, compile, "graph", allow=["version"])
    assert allowed.verdict in ("identical", "diverged")
    assert (allowed.verdict == "identical") == (allowed.detail == "")
    assert allowed.compared


def test_its_failure_is_reduced(other: Path, tmp_path: Path, worker: WorkerOracle) -> None:
    path = copied(other.with_name("failed.db"), tmp_path)
    with Store.open(path, write=True) as store:
        (compile,) = (row for row in compiles_of(store, "guards") if row.status == "failed")
        found = minify(store, compile, options=MinifyOptions(imports=(PLANTED,)), oracle=worker)
    assert calls_of(found.case.checkpoint.graph) == ("sin", "cos")

"""`torchreel minify --group`: real failures of two kinds, here and on a Ray cluster."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import tests.minifier.planted  # registers the backends here, as it does in the worker
from tests.cli.conftest import Result, Run
from tests.cli.stores import failing
from tests.minifier.real import PLANTED, chain_of
from tests.minifier.recorded import record
from tests.server import Server
from torchreel.commands import groups
from torchreel.sandbox.processes import _children as children
from torchreel.store import Store, queries
from torchreel.store.sending.push import push_path

assert tests.minifier.planted, "imported for its side effect"

ASKED = ("--group", "ALL", "--import", PLANTED, "--checks", "1", "--no-explain")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three failures of two kinds."""
    path = tmp_path_factory.mktemp("recorded") / "run.db"
    first = ["relu", "sin", "relu", "neg", "cos", "relu"]
    record(path, chain_of(first), torch.ones(4, 8), backend="planted_two")
    record(path, chain_of(["neg", "tan", "relu"]), torch.ones(4, 8), backend="planted_two")
    return record(path, chain_of(["exp", *first]), torch.ones(4), backend="planted_two")


@pytest.fixture(scope="module")
def by_hand(
    two_groups: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """The files of an export of each group, after `minify` of its smallest failure alone."""
    folder = tmp_path_factory.mktemp("by hand")
    path = shutil.copy(two_groups, folder / "run.db")
    for number in (1, 2):
        words = ["minify", f"{path}#{number}/0/0", *ASKED[2:], "-o", folder / f"{number}"]
        subprocess.run([sys.executable, "-m", "torchreel.cli", *words], check=True, cwd=ROOT)
    return {f"{number}": _files(folder / f"{number}") for number in (1, 2)}


_SECONDS = re.compile(r"(?<=runs and )[\d.]+ s")
_RUNS = re.compile(r"\bin \d+ runs")


def _files(folder: Path) -> dict[str, str]:
    """The files of a folder; how long a reduction took is no part of its result."""
    files = sorted(folder.iterdir())
    return {path.name: _SECONDS.sub("?", path.read_text()) for path in files}


def _exports(output: Path) -> dict[str, dict[str, str]]:
    """The files of each group's folder, by the number of the recording."""
    folders = (path for path in output.iterdir() if path.is_dir())
    return {path.name.partition("-")[0]: _files(path) for path in folders}


def _started(words: list[object], folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torchreel.cli", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_interrupts,
    )


def _take_interrupts() -> None:
    """A shell that starts these tests in the background lets them ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(process: subprocess.Popen[str]) -> Result:
    out, err = process.communicate(timeout=500)
    return Result(process.returncode, out, err)


@pytest.mark.slow
def test_each_group_is_reduced_as_it_would_be_alone(
    run: Run, two_groups: Path, by_hand: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    path, output = Path(shutil.copy(two_groups, tmp_path / "run.db")), tmp_path / "repros"
    found = run("minify", path, *ASKED, "-o", output)
    assert found.status == 0, found
    assert found.out.startswith("2 of 2 groups reduced to the end\n")
    assert f"next: torchreel recheck {path} --python PATH" in found.err
    assert "as long as those that were reduced" in found.err
    assert _exports(output) == by_hand

    again = run("minify", path, *ASKED, "-o", output)
    assert (again.status, again.out.count("reduced before")) == (0, 2), again
    assert "starting a worker" not in again.err

    shutil.rmtree(next(output.glob("1-*")))  # what is lost is written anew, without a run
    lost = run("minify", path, *ASKED, "-o", output)
    assert (lost.status, lost.out.count("reduced before")) == (0, 2), lost
    assert "starting a worker" not in lost.err
    assert _exports(output) == by_hand


@pytest.mark.slow
@pytest.mark.usefixtures("a_file")
def test_ctrl_c_stops_between_groups_and_the_same_command_goes_on(
    two_groups: Path, by_hand: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    path = shutil.copy(two_groups, tmp_path / "run.db")
    words: list[object] = ["minify", path, *ASKED, "-o", "repros"]
    process = _started(words, tmp_path)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("group 2 of 2"):
            process.send_signal(signal.SIGINT)
            break
    stopped = _ended(process)
    assert stopped.status == 130, (seen, stopped)
    assert stopped.out.startswith("1 of 2 groups reduced to the end\n")
    assert "the same command goes on" in stopped.err
    gone_on = _ended(_started(words, tmp_path))
    assert gone_on.status == 0, gone_on
    assert (gone_on.out.count("reduced before"), gone_on.err.count("starting a worker")) == (1, 1)
    assert _exports(tmp_path / "repros") == by_hand


# -- Ray ------------------------------------------------------------------------------------------

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: torchreel[ray] has it"
)


@pytest.mark.slow
@needs_ray
@pytest.mark.usefixtures("a_file")
def test_ray_gives_the_same_files_from_a_server(
    two_groups: Path, by_hand: dict[str, dict[str, str]], server: Server, tmp_path: Path
) -> None:
    url = server.new_database()
    with Store.open(url, create=True) as central:
        push_path(str(two_groups), central)
    words: list[object] = ["minify", url, *ASKED, "--on", "ray", "-o", "repros"]
    found = _ended(_started(words, tmp_path))
    assert found.status == 0, found
    assert _exports(tmp_path / "repros") == by_hand
    with Store.open(url) as central:
        assert [row.status for row in queries.reductions(central)] == ["fixpoint"] * 2
    again = _ended(_started(words, tmp_path))
    assert (again.status, again.out.count("reduced before")) == (0, 2), again


@pytest.mark.slow
@needs_ray
@pytest.mark.usefixtures("a_file")
def test_a_worker_of_ray_that_is_killed_changes_nothing(
    two_groups: Path, by_hand: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The task is started again, and goes on with the verdicts that are in the store."""
    path = Path(shutil.copy(two_groups, tmp_path / "run.db"))
    words: list[object] = ["minify", path, *ASKED, "--on", "ray", "-o", "repros"]
    process = _started(words, tmp_path)
    killed: list[int] = []
    killer = threading.Thread(target=_kill_at_work, args=(process.pid, path, killed))
    killer.start()
    found = _ended(process)
    killer.join()
    assert found.status == 0, found
    assert killed
    exports = _exports(tmp_path / "repros")
    # the number of runs counts those of the worker that died
    assert _without_runs(exports) == _without_runs(by_hand)
    with Store.open(path) as store:
        rows = queries.reductions(store)
    assert [row.status for row in rows].count("fixpoint") == 2
    assert len(rows) > 2, "nobody was killed at work"


def _kill_at_work(parent: int, path: Path, killed: list[int]) -> None:
    """Kill all workers, once one of them has found a first verdict."""
    for _ in range(4000):
        time.sleep(0.05)
        with Store.open(path) as store:
            if not any(row.oracle_runs > 0 for row in queries.reductions(store)):
                continue
        for pid in _below(parent):
            if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::_task"):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return


def _below(pid: int) -> list[int]:
    found = children(pid)
    return [each for child in found for each in (child, *_below(child))]


def _without_runs(exports: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {
        number: {name: _RUNS.sub("?", text) for name, text in files.items()}
        for number, files in exports.items()
    }


# -- what is refused ------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused(run: Run, empty: Path, tmp_path: Path) -> None:
    failing(empty)
    output = ("-o", tmp_path / "repros")
    for words, said in (
        ((empty, "--on", "ray"), "they need --group"),
        ((empty, "--group", "ALL", "--address", "h:1"), "needs --on ray"),
        ((empty, "--group", "ALL", "--on", "slurm"), "--on takes 'ray'"),
        ((f"{empty}#1", "--group", "ALL"), "takes the store alone"),
        ((empty, "--group", "ALL", "--accuracy"), "leave out --accuracy"),
        ((empty, "--group", "abc"), "names no group"),
        ((empty, "--group", "ffffffffffff"), "'torchreel triage' lists them"),
    ):
        result = run("minify", *words, *output)
        assert (result.status, said in result.err) == (2, True), (words, result)
    assert not (tmp_path / "repros").exists()


def test_without_ray_it_says_what_brings_it(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run("minify", failing(empty), "--group", "ALL", "--on", "ray", "-o", tmp_path / "out")
    assert result.status == 2
    assert "pip install 'torchreel[ray]' brings it" in result.err


@needs_ray
@pytest.mark.usefixtures("a_file")
def test_a_cluster_of_other_machines_wants_a_server(run: Run, empty: Path, tmp_path: Path) -> None:
    words = ("--group", "ALL", "--on", "ray", "--address", "127.0.0.1:1", "-o", tmp_path / "out")
    result = run("minify", failing(empty), *words)
    assert result.status == 2
    assert f"torchreel push {empty} --to URL" in result.err


@needs_ray
@pytest.mark.usefixtures("a_file")
def test_a_cluster_that_is_not_there_is_named(
    run: Run, empty: Path, server: Server, tmp_path: Path
) -> None:
    """Ray itself would try for many minutes, without a word."""
    url = server.new_database()
    with Store.open(url, create=True) as central:
        push_path(str(failing(empty)), central)
    words = ("--group", "ALL", "--on", "ray", "--address", "127.0.0.1:1", "-o", tmp_path / "out")
    result = run("minify", url, *words)
    assert result.status == 1, result
    assert "Ray at 127.0.0.1:1 can't be used: nothing answers" in result.err


def test_the_progress_counts_those_at_work_and_is_never_an_error(
    empty: Path, tmp_path: Path
) -> None:
    with Store.open(failing(empty), write=True) as store, store.writer() as w:
        cases = {"start_case": "x", "best_case": "x"}
        row = {"failure_id": 1, "cache_hits": 0, "seconds": 0.0, **cases}
        for began, status in ((1, "running"), (5, "running"), (6, "fixpoint"), (7, "running")):
            w.add("reductions", **row, status=status, started_ns=began, oracle_runs=began)
    assert groups._runs_at_work(str(empty), 5) == 12
    assert groups._runs_at_work(str(tmp_path / "missing.db"), 5) == 0


def test_a_store_without_failures_has_nothing_to_reduce(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    result = run("minify", empty, "--group", "ALL", "-o", tmp_path / "out")
    assert (result.status, result.out) == (0, "0 of 0 groups reduced to the end\n")


def test_what_can_t_be_reduced_is_named_with_the_reason(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    """The checkpoint of this failure is none."""
    result = run("minify", failing(empty), "--group", "ALL", "-o", tmp_path / "out")
    assert result.status == 1, result
    assert "0 of 1 group reduced to the end" in result.out
    assert "not reduced" in result.out
    assert not list((tmp_path / "out").glob("*/repro.py"))

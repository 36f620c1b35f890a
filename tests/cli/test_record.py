"""`torchreel record` around programs that never import torch: it must not get in their way."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("status", [0, 1, 7])
def test_it_exits_as_the_program_does(run: Run, tmp_path: Path, status: int) -> None:
    program = [sys.executable, "-c", f"raise SystemExit({status})"]
    result = run("record", "-o", tmp_path / "run.db", "--", *program)
    assert result.status == status
    assert "recorded 0 compiles" in result.err
    assert f"next: torchreel ls {tmp_path / 'run.db'}" in result.err


def test_a_program_that_dies_of_a_signal(run: Run, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
    assert run("record", "-o", tmp_path / "run.db", "--", *program).status == 128 + 15


def test_options_after_the_program_are_its_own(run: Run, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import sys; sys.exit(sys.argv[1:] != ['-o', '--help', '--'])"]
    assert run("record", "-o", tmp_path / "run.db", *program, "-o", "--help", "--").status == 0


def test_a_store_that_exists_gets_another_recording(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        run("record", "-o", tmp_path / "run.db", "--", sys.executable, "-c", "")
    assert f"{tmp_path / 'run.db'}#2" in run("ls", tmp_path / "run.db").out


def test_a_program_that_is_not_there(run: Run, tmp_path: Path) -> None:
    result = run("record", "-o", tmp_path / "run.db", "--", "no-such-program")
    assert result.status == 2
    assert "can't be run" in result.err


def test_a_file_that_is_no_store_is_refused_before_the_program_runs(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine" * 500)
    made = tmp_path / "made"
    program = [sys.executable, "-c", f"open({str(made)!r}, 'w')"]
    assert run("record", "-o", path, "--", *program).status == 3
    assert not made.exists()
    assert path.read_text() == "mine" * 500

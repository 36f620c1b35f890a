"""`torchreel record` around programs that never import torch: it must not get in their way."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from torchreel.store import Store


@pytest.mark.parametrize("status", [0, 1, 7])
def test_it_exits_as_the_program_does(run: Run, tmp_path: Path, status: int) -> None:
    program = [sys.executable, "-c", f"raise SystemExit({status})"]
    result = run("record", "-o", tmp_path / "run.db", "--", *program)
    assert result.status == status
    if status:
        how = f"the program ended with exit status {status}"
        told = f"torchreel: nothing was recorded: no compile was seen before {how}.\n"
        assert result.err == told
    else:
        assert "recorded 0 compiles" in result.err
        assert f"next: torchreel ls {tmp_path / 'run.db'}" in result.err
    assert (tmp_path / "run.db").exists() == (status == 0)


@pytest.mark.parametrize("status", [0, 1])
def test_where_torch_does_not_call_the_recorder(
    run: Run, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ["--", sys.executable, "-c", f"raise SystemExit({status})"]
    said = "torch does not call torchreel (TORCH_DEVICE_BACKEND_AUTOLOAD=0). Unset it"
    assert said not in run("record", "-o", tmp_path / "run.db", *program).err
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    assert said in run("record", "-o", tmp_path / "run.db", *program).err


def test_a_script_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """The store was made for the program: it goes again; one that was there is as it was."""
    program = ["--", sys.executable, tmp_path / "nosuch.py"]
    for _ in range(2):
        result = run("record", "-o", tmp_path / "run.db", *program)
        assert result.status == 2
        assert "nothing was recorded" in result.err
        assert "next:" not in result.err
        assert list(tmp_path.iterdir()) == []
    run("record", "-o", tmp_path / "run.db", "--", sys.executable, "-c", "")
    assert run("record", "-o", tmp_path / "run.db", *program).status == 2
    assert run("ls", tmp_path / "run.db", "--json").out.count('"recording"') == 1


def test_a_store_that_another_program_is_to_write_into_stays(run: Run, tmp_path: Path) -> None:
    """Both began with no store; one ends badly while the other has recorded nothing yet."""
    path = tmp_path / "run.db"
    bad = [sys.executable, "-c", "from torchreel.cli import main; main()", "record", "-o", path]
    first = f"import subprocess; subprocess.run({[str(word) for word in bad]} + ['--', 'false'])"
    result = run("record", "-o", path, "--", sys.executable, "-c", first)
    assert "recorded 0 compiles" in result.err
    assert run("ls", path).status == 0


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
    assert result.err == "usage: There is no program 'no-such-program' to run.\n"
    script = tmp_path / "train.py"
    script.write_text("")
    result = run("record", "-o", tmp_path / "run.db", "--", script, "--fast")
    assert result.status == 2
    assert f"write 'torchreel record -- python {script} --fast'" in result.err
    assert list(tmp_path.iterdir()) == [script]


def test_a_variable_that_makes_no_sense_does_not_keep_the_program_from_running(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL_SAMPLE", "x")
    program = ["--", sys.executable, "-c", "raise SystemExit(7)"]
    result = run("record", "-o", tmp_path / "run.db", *program)
    assert result.status == 7
    assert "nothing was recorded: TORCHREEL_SAMPLE is 'x', which is no number" in result.err
    result = run("record", "-o", tmp_path / "run.db", "--sample", "1", *program)
    assert result.status == 7
    assert "no compile was seen" in result.err
    assert run("record", "--redact", "some", *program).status == 2


def test_a_file_that_is_no_store_stays_as_it_is_and_the_program_runs(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text("mine\n" * 500)
    program = [sys.executable, "-c", "raise SystemExit(7)"]
    result = run("record", "-o", path, "--", *program)
    assert result.status == 7
    assert result.err.startswith(f"torchreel: nothing was recorded: {path} is a text file")
    assert path.read_text() == "mine\n" * 500


CHANGES = {
    "deleted": "os.unlink(path)",
    "replaced by text": "open(path, 'w').write('mine')",
    "replaced": "shutil.copy(other, path + 'x'); os.replace(path + 'x', path)",
    "overwritten": "shutil.copyfile(other, path)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_that_changes_meanwhile_changes_nothing_else(
    run: Run, tmp_path: Path, change: str
) -> None:
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    Store.open(other, create=True).close()
    before = other.read_bytes()
    names = f"path, other = {str(path)!r}, {str(other)!r}"
    program = f"import os, shutil, sys; {names}; {CHANGES[change]}; sys.exit(7)"
    result = run("record", "-o", path, "--", sys.executable, "-c", program)
    assert result.status == 7
    (line,) = result.err.splitlines()
    said = "deleted" if change == "deleted" else "replaced"
    assert line == f"torchreel: nothing was recorded: {path} was {said} while it was recorded into."
    if change in ("replaced", "overwritten"):
        assert path.read_bytes() == before


@pytest.mark.parametrize("room", ["4k", "16k", "200k"])
def test_a_disk_without_room(run: Run, tmp_path: Path, room: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        program = [sys.executable, "-c", "print('ran'); raise SystemExit(7)"]
        result = run("record", "-o", disk / "run.db", "--", *program)
        left = sorted(file.name for file in disk.iterdir())
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert result.status == 7
    assert "Traceback" not in result.err
    assert left == []
    assert "nothing was recorded: " in result.err
    if room == "200k":
        assert "no compile was seen" in result.err
    else:
        assert re.search("can't be created: (the disk is full|disk I.O error)", result.err)


def test_a_read_only_directory(run: Run, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    bind = ["mount", "--bind", str(closed), str(closed)]
    for command in (bind, ["mount", "-o", "remount,ro,bind", str(closed)]):
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
    try:
        result = run("record", "-o", closed / "run.db", "--", sys.executable, "-c", "exit(7)")
    finally:
        subprocess.run(["umount", "-l", str(closed)], check=True)
    assert result.status == 7
    assert "nothing was recorded: " in result.err
    assert "Read-only file system" in result.err


@pytest.mark.slow
def test_nobody_reads_what_is_said_at_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from torchreel.cli import main; main()", "record", "-o"]
    program = ["--", sys.executable, "-c", "raise SystemExit(7)"]
    for closed in ("2>&-", ">&- 2>&-", "2>/dev/full"):
        text = shlex.join([*command, str(tmp_path / "run.db"), *program])
        assert subprocess.run(["sh", "-c", f"exec {text} {closed}"]).returncode == 7, closed
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as broken:
        done = subprocess.run([*command, str(tmp_path / "run.db"), *program], stderr=broken)
    assert done.returncode == 7


def test_the_environment_is_the_one_that_there_was(tmp_path: Path) -> None:
    """Without a locale Python sets one for its children: the program's parent is a shell."""
    program = [sys.executable, "-c", "from torchreel.cli import main; main()", "record"]
    command = [*program, "-o", str(tmp_path / "run.db"), "--", "env"]
    done = subprocess.run(command, env={"A": "1"}, capture_output=True, text=True)
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert {name for name in names if not name.startswith("TORCHREEL")} == {"A"}


@pytest.mark.parametrize(
    ("options", "frames"), [((), "all"), (("--frames", "none"), "none")], ids=["said", "overruled"]
)
def test_what_is_not_said_is_as_the_environment_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], frames: str
) -> None:
    monkeypatch.setenv("TORCHREEL_FRAMES", "all")
    monkeypatch.setenv("TORCHREEL_REDACT", "none")
    names = "TORCHREEL_FRAMES", "TORCHREEL_REDACT"
    seen = tmp_path / "seen"
    show = f"import os; open({str(seen)!r}, 'w').write(' '.join(map(os.environ.get, {names})))"
    run("record", "-o", tmp_path / "run.db", *options, "--", sys.executable, "-c", show)
    assert seen.read_text().split() == [frames, "none"]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise SystemExit(3)", ""])
def test_a_bad_end_without_a_failure_names_the_command_that_looks(
    run: Run, tmp_path: Path, end: str
) -> None:
    compiled = "import torch; torch.compile(torch.sin, backend='eager')(torch.ones(2))"
    program = [sys.executable, "-c", f"{compiled}; {end}"]
    told = run("record", "-o", tmp_path / "run.db", "--", *program).err
    assert "recorded 1 compile" in told
    command = f"torchreel minify {tmp_path / 'run.db'} --accuracy --trust"
    assert ("ended with exit status 3" in told and command in told) == bool(end)

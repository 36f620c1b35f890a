"""One clear sentence and the right exit status for everything that can't be done."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing
from tests.store.rows import add_compile, add_recording
from torchreel.store import Store


@pytest.mark.parametrize("verb", ["ls", "show", "replay", "minify", "export"])
def test_a_store_that_is_not_there(run: Run, tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "none.db")
    assert (result.status, result.out) == (3, "")
    assert "There is no store at" in result.err
    assert "Traceback" not in result.err


def test_a_store_that_is_not_there_is_said_before_files_that_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text("mine")
    result = run("minify", tmp_path / "none.db", "-o", tmp_path)
    assert result.status == 3
    assert "There is no store at" in result.err


def test_the_variable_is_named_where_it_would_have_helped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL_STORE", str(tmp_path / "usual.db"))
    assert run("ls").err.rstrip().endswith("or name another with TORCHREEL_STORE.")
    assert run("ls", tmp_path / "none.db").err.rstrip().endswith("or name another.")


@pytest.mark.parametrize("verb", ["ls", "show", "replay", "minify", "export"])
def test_a_file_that_is_no_store(run: Run, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing to see here" * 100)
    result = run(verb, path)
    assert (result.status, result.out) == (3, "")
    assert path.read_text() == "nothing to see here" * 100
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("address", ["#x", "#1/0/7", "#9", "#1@77"])
def test_an_address_of_nothing(run: Run, empty: Path, address: str) -> None:
    result = run("show", f"{failing(empty)}{address}")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("usage: ")


def test_an_option_that_does_not_exist(run: Run) -> None:
    assert run("show", "--nonsense").status == 2


def test_a_compile_that_did_not_fail_has_nothing_to_export(run: Run, empty: Path) -> None:
    result = run("export", f"{failing(empty)}#1/0/0")
    assert result.status == 2
    assert "did not fail" in result.err


def test_a_store_in_which_nothing_failed_names_no_compile(run: Run, empty: Path) -> None:
    with Store.open(empty, write=True) as store, store.writer() as w:
        add_compile(w, add_recording(w), "0/0", status="ok")
    for verb in ("minify", "export", "bisect", "share"):
        result = run(verb, empty, *(() if verb == "bisect" else ("-o", empty.parent / "out")))
        assert result.status == 2, result.err
        assert result.err.startswith(f"usage: No compile in {empty} failed"), verb


def test_minify_starts_nothing_where_nothing_failed(run: Run, empty: Path, tmp_path: Path) -> None:
    result = run("minify", f"{failing(empty)}#1/0/0", "-o", tmp_path / "out")
    assert result.status == 2
    assert result.err.startswith("usage: The compile 1/0/0 did not fail.")


def test_files_are_not_overwritten(run: Run, empty: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "issue.md").write_text("mine")
    for verb in ("export", "minify"):
        result = run(verb, failing(empty), "-o", place)
        assert result.status == 2
        assert "--force" in result.err
    assert (place / "issue.md").read_text() == "mine"


def test_a_checkpoint_that_is_none_is_refused(run: Run, empty: Path) -> None:
    result = run("export", failing(empty))
    assert result.status == 3
    assert "Traceback" not in result.err


def test_an_interrupt_ends_with_130_and_names_the_same_command(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchreel.commands.views import ls

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ls, "ls", interrupted)
    result = run("ls", empty, "--all")
    assert (result.status, result.out) == (130, "")
    assert re.search(r"^interrupted\nnext: torchreel ls \S+ --all$", result.err.strip())


def test_the_package_is_the_command_line() -> None:
    command = [sys.executable, "-m", "torchreel", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("torchreel ")


def test_the_versions_are_said_without_torch(run: Run) -> None:
    result = run("--version")
    assert result.status == 0
    assert re.fullmatch(r"torchreel [\d.]+, torch 2\.\S+, Python 3\.\S+\n", result.out)


def test_a_store_is_no_question(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_text("")
    result = run("why", path)
    assert result.status == 2
    assert f"as in 'torchreel why {path} recompile'" in result.err


def test_an_event_without_its_recording_is_no_question(run: Run, empty: Path) -> None:
    """It was looked for in the store of nothing else."""
    told = run("why", f"{failing(empty)}@12")
    assert told.status == 2
    assert f"as in 'torchreel why {empty}#1@12'" in told.err


@pytest.mark.usefixtures("a_file")
def test_a_command_that_is_advised_can_be_pasted(run: Run, empty: Path) -> None:
    path = failing(empty).rename(empty.with_name("my run.db"))
    asked = [
        ("show", f"{path}#9"),
        ("show", f"{path}#1/7/7"),
        ("report", f"{path}#1/7/7", "-o", path.with_name("page.html")),
        ("why", path),
        ("why", f"{path}@12"),
    ]
    for words in asked:
        result = run(*words)
        assert result.status == 2
        advised = re.search(r"'(torchreel .*)'", result.err)
        assert advised is not None, result.err
        assert shlex.split(advised[1])[2].startswith(str(path))


@pytest.mark.usefixtures("a_file")
def test_an_advised_report_overwrites_none(run: Run, empty: Path, tmp_path: Path) -> None:
    made = run("export", failing(empty), "--format", "perfetto", "-o", tmp_path / "trace")
    assert made.err.splitlines()[-1].endswith(f" -o {tmp_path / 'trace' / 'report.html'}")
    page = tmp_path / "report.html"
    assert run("report", empty, "-o", page, "--max-size", "1k").status == 0
    assert f"torchreel report {empty}#1/0/0 -o report-1-0-0.html" in page.read_text()


@pytest.mark.usefixtures("a_file")
def test_closed_streams_are_no_tracebacks(empty: Path) -> None:
    listing = f"{sys.executable} -m torchreel.cli ls {shlex.quote(str(failing(empty)))}"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(["sh", "-c", f"{listing} {closed}"], capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.usefixtures("a_file")
def test_a_character_that_the_stream_does_not_have_is_spelled_out(empty: Path) -> None:
    words = ["query", str(empty), "SELECT 'λ' AS a", "--csv"]
    done = subprocess.run(
        [sys.executable, "-m", "torchreel.cli", *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert (done.returncode, done.stdout) == (0, b"a\n\\u03bb\n"), done.stderr

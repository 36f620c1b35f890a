"""`torchreel import` and `torchreel export --format torch-trace`: a trace comes from a stranger."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_stranger import EVIL, WATCHED

PREFIX = "V0115 10:00:00.000001 77 torch/x.py:1] "
ID = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
START = {"dynamo_start": {"stack": [{"line": 7, "name": "step", "filename": "train.py"}]}, **ID}
END = {"compilation_metrics": {"fail_type": None}, **ID}
FILE = "dedicated_log_torch_trace_a.log"


def log(directory: Path, *records: dict[str, object], name: str = FILE) -> Path:
    """A log file; each record has the payload 'text'."""
    directory.mkdir(exist_ok=True)
    digest = {"has_payload": hashlib.md5(b"text").hexdigest()}
    lines = [f"{PREFIX}{json.dumps({**record, **digest})}\n\ttext\n" for record in records]
    directory.joinpath(name).write_text("".join(lines))
    return directory


def test_a_trace_is_imported_and_listed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    result = run("import", log(tmp_path / "logs", START, END), "-o", path)
    assert (result.status, result.out) == (0, f"{path}#1: 2 events and 1 compile from {FILE}\n")
    assert result.err == f"next: torchreel ls {path}\n"
    listed = run("ls", path)
    assert "import  done" in listed.out
    assert f"{path}#1/0/0  step   ok" in listed.out


def test_what_was_lost_is_said(run: Run, tmp_path: Path) -> None:
    logs = log(tmp_path / "logs", START, END)
    with (logs / FILE).open("a") as file:
        file.write("junk\n" * 3)
    result = run("import", logs, "-o", tmp_path / "run.db")
    assert result.status == 0
    assert f"lost 3 x records of {FILE}\n" in result.err
    assert "a line that is no record" in run("show", tmp_path / "run.db").out


def test_an_import_is_exported_as_it_was(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "run.db", tmp_path / "out"
    logs = log(tmp_path / "logs", START, END)
    run("import", logs, "-o", path)
    result = run("export", f"{path}#1", "--format", "torch-trace", "-o", out)
    file = out / "dedicated_log_torch_trace_recording_1.log"
    assert (result.status, result.out) == (0, f"wrote {file} (2 records)\n")
    assert result.err == f"next: tlparse {file}\n"
    assert file.read_bytes() == (logs / FILE).read_bytes()
    again = run("export", f"{path}#1", "--format", "torch-trace", "-o", out)
    assert again.status == 2
    assert "exists already: use --force" in again.err
    forced = run("export", f"{path}#1", "--format", "torch-trace", "-o", out, "--force")
    assert forced.status == 0


def test_ranks_are_exported_for_tlparse(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "run.db", tmp_path / "out"
    for rank in (0, 1):
        name = f"dedicated_log_torch_trace_rank_{rank}_a.log"
        log(tmp_path / "logs", {**START, "rank": rank}, name=name)
    run("import", tmp_path / "logs", "-o", path)
    result = run("export", path, "--format", "torch-trace", "-o", out)
    assert result.err == f"next: tlparse --all-ranks-html {out}\n"
    assert sorted(file.name for file in out.iterdir()) == [
        "dedicated_log_torch_trace_rank_0_recording_1.log",
        "dedicated_log_torch_trace_rank_1_recording_2.log",
    ]


@pytest.mark.parametrize("name", ["nowhere", "empty", "junk"])
def test_what_can_not_be_imported_is_one_sentence(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / FILE).write_bytes(b"\x00\xff" * 1000)
    result = run("import", tmp_path / name, "-o", tmp_path / "run.db")
    assert result.status == (2 if name == "empty" else 3)
    assert result.err.count("\n") == 1
    assert str(tmp_path / name) in result.err


def test_a_store_without_a_trace(run: Run, empty: Path, tmp_path: Path) -> None:
    result = run("export", empty, "--format", "torch-trace", "-o", tmp_path / "out")
    assert result.status == 2
    assert not (tmp_path / "out").exists()


def test_a_hostile_trace_is_shown_as_text(tmp_path: Path) -> None:
    """In processes that can't import torch and are watched for whatever runs."""
    stack = [{"line": 1, "name": EVIL, "filename": EVIL}]
    failure = {"fail_type": EVIL, "fail_reason": EVIL}
    records: list[dict[str, object]] = [
        {"dynamo_start": {"stack": stack}, **ID},
        {"artifact": {"name": EVIL}, **ID},
        {EVIL: {"name": "../../owned"}, **ID},
        {"compilation_metrics": {**failure, "exception_stack_trace": [EVIL]}, **ID},
    ]
    log(tmp_path / "logs", *records)
    path = tmp_path / "run.db"
    for words in (
        ("import", tmp_path / "logs", "-o", path), ("ls", path), ("show", path, "--events"),
        ("show", path, "--traceback"), ("export", path, "--format", "torch-trace", "-o", tmp_path),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *map(str, words)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path.parent / "owned").exists()

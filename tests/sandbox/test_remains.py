"""What a confined process left is read as a plain file or not at all; what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel import sandbox
from torchreel.doctor import examine
from torchreel.sandbox import filesystem, system_calls
from torchreel.sandbox.missing import missing, warn_once
from torchreel.sandbox.remains import is_file, read_file


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "file") == b"content"
    assert read_file(tmp_path / "file", 3) == b"con"
    for name in ("link", "pipe", "absent", "."):
        assert read_file(tmp_path / name) is None
        assert not is_file(tmp_path / name)
    assert is_file(tmp_path / "file")


def test_what_is_missing_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(filesystem, "abi", lambda: 0)
    monkeypatch.setattr(system_calls, "is_available", lambda: False)
    warn_once.cache_clear()
    warn_once()
    warn_once()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith("sandbox: no Landlock in this kernel")
    assert said[1].startswith("sandbox: no seccomp filter")
    warn_once.cache_clear()
    (finding,) = [found for found in examine() if found.what == "sandbox"]
    assert finding.state == "warning"
    assert "no Landlock" in finding.found


@pytest.mark.skipif(bool(missing()), reason="this kernel has no whole sandbox")
def test_where_nothing_is_missing_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    warn_once.cache_clear()
    warn_once()
    assert capsys.readouterr().err == ""
    (finding,) = [found for found in examine() if found.what == "sandbox"]
    assert (finding.state, finding.found) == (
        "ok",
        f"Landlock {filesystem.abi()} and seccomp",
    )


def test_without_the_features_a_process_goes_on_and_returns_what_is_missing(
    tmp_path: Path,
) -> None:
    script = f"""
from pathlib import Path
from torchreel import sandbox
from torchreel.sandbox import filesystem, system_calls
filesystem.abi = lambda: 0
system_calls.is_available = lambda: False
print(len(sandbox.confine(sandbox.Confinement(Path({str(tmp_path)!r})))))
Path({str(tmp_path / "new")!r}).write_text("x")
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_an_error_of_permissions_is_a_denial_only_where_there_is_a_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = PermissionError(13, "Permission denied")
    assert sandbox.denied([error]) == ""
    monkeypatch.setattr("torchreel.sandbox.denials.is_confined", lambda: True)
    assert "the sandbox denied" in sandbox.denied([ValueError("x"), error])
    assert "the sandbox denied" in sandbox.denied([RuntimeError("open: Permission denied")])
    assert sandbox.denied([ValueError("x"), FileNotFoundError(2, "No such file")]) == ""

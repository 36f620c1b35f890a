"""The process that makes programs of a frame: slow, or with output that is no text."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchreel.errors import MinifyError, UnsupportedError
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.source import frame_programs


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import time\ntime.sleep(60)", UnsupportedError, "0/0 was not loaded within 1 s"),
        (
            "import sys\nsys.stdin.read()\nsys.stderr.buffer.write(b'\\xffwhy')",
            MinifyError,
            "could not be loaded. Its process ended with status 0, and said:\n\ufffdwhy",
        ),
        (
            "import os, sys\nsys.stdin.read()\nos.kill(os.getpid(), 11)",
            MinifyError,
            r"could not be loaded. Its process died by SIGSEGV\.$",
        ),
    ],
)
def test_a_frame_that_is_not_loaded_is_an_error_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: type, message: str
) -> None:
    (tmp_path / "instead_of_child.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bundle = SimpleNamespace(data=b"", document=b"", place="0/0")
    monkeypatch.setattr(frame_programs, "read_bundle", lambda *args: bundle)
    monkeypatch.setattr(frame_programs, "child", SimpleNamespace(__name__="instead_of_child"))
    monkeypatch.setattr(frame_programs, "_SECONDS", 1.0 if "sleep" in text else 60.0)
    compile = cast(Any, SimpleNamespace(place="0/0"))
    with pytest.raises(error, match=message):
        frame_programs.programs(cast(Any, None), compile, MinifyOptions(trust=True))

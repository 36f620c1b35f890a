"""The probes of the processor's vector instructions: made once, found in every other directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch._inductor.cpu_vec_isa import valid_vec_isa_list

from torchreel.replay.imposed.vector_isa import copy_probes

LOOK = """
import subprocess
from torch._inductor import cpu_vec_isa, cpp_builder

def no_compiler(*arguments):
    raise AssertionError("a probe was compiled")

cpp_builder.run_compile_cmd = no_compiler
print(len(cpu_vec_isa.valid_vec_isa_list()))
"""


def look(cache: Path) -> subprocess.CompletedProcess[str]:
    """Have Inductor look for vector instructions, without a compiler."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", LOOK]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_probes_are_made_once(tmp_path: Path) -> None:
    copy_probes(tmp_path / "copied", make=True)
    found = look(tmp_path / "copied")
    assert (found.stdout, found.stderr) == (f"{len(valid_vec_isa_list())}\n", "")
    # Without them it would have needed the compiler, and takes a failure for a "no".
    assert look(tmp_path / "empty").stdout == "0\n"


def test_none_are_made_for_who_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    copy_probes(tmp_path / "copied", make=False)
    assert list(tmp_path.iterdir()) == []

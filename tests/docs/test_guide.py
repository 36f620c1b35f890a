"""The guide tells the truth: its programs are written down and its commands are run, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import guide

BLOCK = re.compile(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_PROGRESS = re.compile(r"^reading \S+, [\d.]+ s\n", re.MULTILINE)
"""What a command says of itself after some seconds, on a machine that is busy."""
_STATUS = re.compile(r"\s*# exits with (\d+)$")


@dataclass(frozen=True)
class Command:
    """A line that begins with '$', and what the guide shows after it."""

    line: str
    status: int
    expected: str


def steps() -> Iterator[tuple[str, str] | Command]:
    """Files to write and commands to run."""
    for kind, name, text in BLOCK.findall(guide()):
        if name:
            yield name, text
        elif kind == "console":
            yield from commands(text)


def commands(text: str) -> Iterator[Command]:
    """The commands of a block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        status = _STATUS.search(line)
        yield Command(_STATUS.sub("", line), int(status[1]) if status else 0, expected)


def run_command(command: Command, folder: Path) -> tuple[int, str]:
    """The exit status of a command in a folder, and all that it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHREEL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    result = subprocess.run(
        shlex.split(command.line),
        cwd=folder,
        env={**kept, "PATH": path, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return result.returncode, _PROGRESS.sub("", result.stdout)


def shows(expected: str, output: str) -> bool:
    """Whether an output is the expected one, '...' standing for anything."""
    parts = [re.escape(part.strip()) for part in re.split(r"\.\.\.", _plain(expected))]
    return re.fullmatch(r"\s*" + r".*".join(parts) + r"\s*", _plain(output), re.DOTALL) is not None


def _plain(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


@pytest.mark.slow
def test_the_guide_is_true(tmp_path: Path) -> None:
    for step in steps():
        if isinstance(step, tuple):
            (tmp_path / step[0]).write_text(step[1], encoding="utf-8")
            continue
        status, output = run_command(step, tmp_path)
        assert status == step.status, f"$ {step.line}\n{output}"
        assert shows(step.expected, output), f"$ {step.line}\n{output}\nexpected\n{step.expected}"


def test_the_guide_has_examples() -> None:
    assert sum(isinstance(step, Command) for step in steps()) >= 8

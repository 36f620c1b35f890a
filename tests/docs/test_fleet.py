"""The page about stores on a server tells the truth: its examples are run, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_guide import BLOCK, commands, run_command, shows
from tests.server import Server

PAGE = ROOT / "docs" / "fleet.md"
URL = "postgresql+psycopg://me@db.example/torchreel"


@pytest.mark.slow
def test_the_examples_are_true(tmp_path: Path, server: Server) -> None:
    text = PAGE.read_text(encoding="utf-8").replace(URL, server.new_database())
    ran = 0
    for kind, name, block in BLOCK.findall(text):
        if name:
            (tmp_path / name).write_text(block, encoding="utf-8")
        elif kind == "console":
            for command in commands(block):
                if command.line.startswith("torchreel "):  # not pip, createdb and psql
                    status, output = run_command(command, tmp_path)
                    assert status == command.status, f"$ {command.line}\n{output}"
                    assert shows(command.expected, output), f"$ {command.line}\n{output}"
                    ran += 1
    assert ran >= 8

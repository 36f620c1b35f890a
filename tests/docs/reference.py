"""Writes docs/cli.md from the help of the command line: `python -m tests.docs.reference`."""

from __future__ import annotations

from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from torchreel.cli import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
_HEAD = """# Commands

What `torchreel --help` and `torchreel COMMAND --help` print. This page is written by
`python -m tests.docs.reference`, and a test fails when it is not what that would write.
"""


def commands() -> list[str]:
    """The verbs, in the order of the help."""
    return list(get_command(app).commands)  # type: ignore[attr-defined]


def page() -> str:
    """The text of the page."""
    sections = [_section("torchreel", [])]
    sections += [_section(f"torchreel {name}", [name]) for name in commands()]
    return "\n".join([_HEAD, *sections])


def _section(title: str, words: list[str]) -> str:
    result = CliRunner().invoke(
        app, [*words, "--help"], env={"COLUMNS": "88"}, prog_name="torchreel"
    )
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.strip().splitlines()]
    return f"## {title}\n\n```\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

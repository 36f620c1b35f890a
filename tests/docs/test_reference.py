"""Every command is documented: docs/cli.md is what the help says, and the guide uses every verb."""

import pytest
from typer.testing import CliRunner

from tests.docs.pages import guide
from tests.docs.reference import PAGE, commands, page
from torchreel.cli import app


def test_the_page_of_commands_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.reference"


def test_every_verb_is_told_in_one_line_of_a_narrow_terminal() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}, prog_name="torchreel")
    _, *lines = result.stdout.strip().splitlines()
    assert [line for line in lines if line.endswith("...") or len(line) > 80] == []
    told = [line.split()[0] for line in lines if line.startswith("  ") and line.split()]
    assert set(commands()) <= set(told)


@pytest.mark.parametrize("verb", commands())
def test_every_verb_has_a_section_and_is_in_the_guide(verb: str) -> None:
    assert f"## torchreel {verb}\n" in PAGE.read_text(encoding="utf-8")
    assert f"torchreel {verb}" in guide()

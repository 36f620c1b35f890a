"""Every command is documented: docs/cli.md is what the help says, and the guide uses every verb."""

import pytest

from tests.docs.pages import guide
from tests.docs.reference import PAGE, commands, page


def test_the_page_of_commands_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.reference"


@pytest.mark.parametrize("verb", commands())
def test_every_verb_has_a_section_and_is_in_the_guide(verb: str) -> None:
    assert f"## torchreel {verb}\n" in PAGE.read_text(encoding="utf-8")
    assert f"torchreel {verb}" in guide()

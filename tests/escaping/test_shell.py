"""A command that is copied runs what it says."""

import shlex

from hypothesis import given

from tests.escaping.nasty import TEXTS
from torchreel.escaping.characters import visible
from torchreel.escaping.shell import command, with_variables, word


@given(TEXTS)
def test_a_text_is_one_word(text: str) -> None:
    assert shlex.split(f"a {word(text)} b", comments=True) == ["a", visible(text), "b"]


@given(TEXTS)
def test_a_value_of_a_variable_is_a_value(text: str) -> None:
    found = with_variables({"A": text, "B": "1"}, "python", "repro.py")
    assert shlex.split(found, comments=True) == [f"A={visible(text)}", "B=1", "python", "repro.py"]


def test_an_address_needs_no_quotes_and_a_blank_does() -> None:
    words = ("torchreel", "show", "run.db#2/0/1", "my run.db#1", "$(reboot)", "#1")
    assert command(*words) == "torchreel show run.db#2/0/1 'my run.db#1' '$(reboot)' '#1'"

"""A command that is copied runs what it says."""

import subprocess

from tests.escaping.nasty import with_every_fragment
from torchreel.escaping.characters import visible
from torchreel.escaping.shell import command, with_variables, word


def shell(line: str) -> str:
    """What a real shell makes of a line."""
    return subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout.decode()


@with_every_fragment
def test_a_text_is_one_word(text: str) -> None:
    assert shell(f"printf '%s|' a {word(text)} b") == f"a|{visible(text)}|b|"


@with_every_fragment
def test_a_value_of_a_variable_is_a_value(text: str) -> None:
    found = with_variables({"A": text, "B": "1"}, "printenv", "A", "B")
    assert shell(found) == f"{visible(text)}\n1\n"


def test_an_address_needs_no_quotes_and_a_blank_does() -> None:
    words = ("torchreel", "show", "run.db#2/0/1", "my run.db#1", "$(reboot)", "#1")
    assert command(*words) == "torchreel show run.db#2/0/1 'my run.db#1' '$(reboot)' '#1'"

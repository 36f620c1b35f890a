"""The table of known forms, and how it is made of the rules of gitleaks."""

import re

import pytest

from tools.known_forms import forms, table
from torchreel.recorder.redaction import Redactor, Rules
from torchreel.recorder.redaction.known.form_table import TABLE


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (r"""ghp_[0-9a-zA-Z]{36}""", [("ghp_", 16)]),
        (r"""(?i)\b(npm_[a-z0-9]{36})(?:[\x60'"\s;]|\\[nr]|$)""", [("npm_", 16)]),
        (
            r"""\b((?:sk|rk)_(?:test|live)_[a-zA-Z0-9]{10,99})\b""",
            [("sk_test_", 10), ("sk_live_", 10), ("rk_test_", 10), ("rk_live_", 10)],
        ),
        (r"""xox[pe](?:-[0-9]{10,13}){3}-[a-zA-Z0-9-]{28,34}""", [("xoxp", 16), ("xoxe", 16)]),
        (r"""\b(4b1d[A-Za-z0-9]{38})\b""", []),  # a digest may begin so
        (r"""[\w.-]{0,50}?(?:okta)[=:](00[\w=-]{40})""", []),
    ],
)
def test_a_rule_is_reduced_to_its_beginning(rule: str, found: list[tuple[str, int]]) -> None:
    assert [(form.prefix, form.least) for form in forms(rule)] == found


def test_a_table_is_made_of_all_rules() -> None:
    rules = b"""
[[rules]]
id = 'x'
regex = 'ghp_[0-9a-zA-Z]{36}'
[[rules]]
id = 'y'
regex = 'a+'
"""
    assert table(rules) == {("x", "ghp_"): ("A-Za-z0-9", 16)}


@pytest.mark.parametrize(("name", "prefix", "characters", "least"), TABLE)
def test_each_form_is_taken_out(name: str, prefix: str, characters: str, least: int) -> None:
    inside = re.findall(f"[{characters}]", "a1B2c3D4e5F6" + "".join(map(chr, range(48, 127))))
    token = prefix + "".join(inside * 20)[: max(least, 40)]
    redactor = Redactor(Rules(), {})
    assert redactor.text(f"it is {token} here") == "it is <redacted> here", name
    assert redactor.json({"text": f"it\n{token}"}) == '{"text":"it\\n<redacted>"}'

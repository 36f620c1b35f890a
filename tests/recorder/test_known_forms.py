"""The table of known forms, and how it is made of the rules of gitleaks."""

import re

import pytest

from tools.known_forms import forms, table
from torchreel.recorder.redaction import Redactor, Rules
from torchreel.recorder.redaction.known.gitleaks_table import TABLE
from torchreel.recorder.redaction.known.tokens import _OWN

SIXTEEN, FORTY = "aB3dE5fG7hI9jK1l", "aB3dE5fG7h" * 4
EXAMPLES = {
    "AKIA": "@Q7ZX0CV5BN3M", "ASIA": "@Q7ZX0CV5BN3M",
    "ghp_": f"@{SIXTEEN}", "gho_": f"@{SIXTEEN}", "ghs_": f"@{SIXTEEN}", "ghu_": f"@{SIXTEEN}",
    "ghr_": f"@{SIXTEEN}", "github_pat_": f"@{SIXTEEN}", "hf_": f"@{SIXTEEN}",
    "sk-": f"@{SIXTEEN}", "xox": f"@b-{SIXTEEN}", "xapp-": f"@{SIXTEEN}",
    "SG.": "@aB3dE5fG7h.aB3dE5fG7h", "pypi-": f"@{SIXTEEN}", "sq0": f"@atp-{FORTY}",
    "hvs.": "@aB3dE5fG7h", "hvb.": "@aB3dE5fG7h", "eyJ": "@aB3dE5fG7h.aB3dE5fG7h",
    "ya29.": "@aB3dE5fG7h", "1//0": f"@{FORTY}", "GOCSPX-": f"@{SIXTEEN}", "whsec_": f"@{SIXTEEN}",
    "dckr_pat_": f"@{SIXTEEN}", "tskey-": f"@{SIXTEEN}", "wandb_v1_": f"@{SIXTEEN}",
    "r8_": f"@{FORTY}", "gsk_": f"@{FORTY}", "nvapi-": f"@{FORTY}", "LS0tLS1CRUdJTi": f"@{FORTY}",
    ":AA": f"1234567890@{FORTY[:33]}",
    "Bearer ": "@aB3dE5fG", "Basic ": "@aB3dE5fG", "curl ": "@-u bob:aB3d https",
    "mysql": "@ -paB3d", "Digest ": "@username=aB3d, realm=x", "://": "db@bob:aB3d@host",
    "hooks.slack.com/": f"https://@{SIXTEEN}", "/api/webhooks/": f"https://x.y@7/{SIXTEEN}",
    "Signature=": "?X-Amz@aB3dE5", "sig=": "?@aB3dE5", "key=": "?@aB3dE5",
    "pin=": "@4711", "pin:": "@4711", "pin ": "PIN is 4711",
    "-----BEGIN ": f"@PRIVATE KEY-----{FORTY}", "-----BEGIN PGP MESSAGE": f"@-----{FORTY}",
}  # fmt: skip
"""By the word of a row of `_OWN`, a text with that row's secret.

`@` stands for the word, so that no scanner of secrets reports this file.
"""


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


def test_each_row_of_our_own_has_an_example() -> None:
    assert [word for word, _ in _OWN] == list(EXAMPLES)


@pytest.mark.parametrize(("word", "pattern"), _OWN)
def test_each_form_of_our_own_is_taken_out(word: str, pattern: bytes) -> None:
    text = EXAMPLES[word].replace("@", word, 1)
    found = re.search(pattern, text.encode())
    assert found is not None
    secret = (found[1] if found.re.groups else found[0]).decode()
    left = Redactor(Rules(), {}).text(f"it is {text}")
    assert "<redacted>" in left
    assert secret.rpartition(":")[2] not in left

"""What is taken out of text before it is stored, and what is left alone."""

import json
import re

import pytest

from torchreel.errors import UsageError
from torchreel.recorder.redaction import Redactor, Rules, Withheld
from torchreel.store.jsontypes import Json, canonical_json

ENVIRON = {
    "HOME": "/home/alice", "USER": "alice", "WANDB_API_KEY": 'nine "quoted" lives',
    "MY_TOKEN": "swordfish", "SSH_AUTH_SOCK": "/tmp/ssh", "TOKENIZERS_PARALLELISM": "false",
    "LANG": "C.UTF-8",
}  # fmt: skip
ARGV = ["train.py", "--hub-token", "given-on-the-line", "--password=tiger-tiger", "--lr=0.125"]

# Put together here, so that this file has no secret in it that a scanner would report.
AWS, GITHUB = "AKIA" + "IOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9
RANDOM = "kJ8h" + "2Gf6Dd9Lq1Zx0Cv7Bn5M"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(Rules(), ENVIRON, ARGV)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"key {AWS} here", "key <redacted> here"),
        (f"{GITHUB}", "<redacted>"),
        ("hf_" + "x" * 34, "<redacted>"),
        ("sk-proj-" + "x1" * 20, "<redacted>"),
        ("Authorization: Bearer abcdefgh.1234", "Authorization: <redacted>"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nxx\n-----END RSA PRIVATE KEY-----", "<redacted>"),
        ("https://me:hunter2@host/x", "https://<redacted>@host/x"),
        ("password=hunter2", "password=<redacted>"),
        ("PASSWORD = 'correct horse'", "PASSWORD = '<redacted>'"),
        ('db_password: "correct horse"', 'db_password: "<redacted>"'),
        ('{"api_key": "abc"}', '{"api_key": "<redacted>"}'),
        ("connect(secret='x', n=3)", "connect(secret='<redacted>', n=3)"),
        ("token=abcd12345678", "token=<redacted>"),
        (f"KEY = '{RANDOM}'", "KEY = '<redacted>'"),
        (f'KEY = "{RANDOM}"', 'KEY = "<redacted>"'),
        ("it said swordfish twice: swordfish", "it said <redacted> twice: <redacted>"),
        ('a nine "quoted" lives b', "a <redacted> b"),
        ("given-on-the-line", "<redacted>"),
        ("tiger-tiger", "<redacted>"),
        ("/home/alice/x.py:3", "~/x.py:3"),
        ("/home/alice", "~"),
        ("/home/bob/x.py", "~/x.py"),
        ("/scratch/alice/run", "~/run"),
        ("/tmp/torchinductor_alice/x", "/tmp/~/x"),
        ("# home/alice/x.py:3 in f", "# ~/x.py:3 in f"),
        ("alice/x.py", "~/x.py"),
    ],
)  # fmt: skip
def test_secrets_and_homes_are_taken_out(redactor: Redactor, text: str, kept: str) -> None:
    assert redactor.text(text) == kept
    assert redactor.text(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "cgx3kq7z2mlw5y4nabcdefghijklmnopqrstuvwxyz234567abcde",
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcEE",
        "'l_self_modules_h_modules_0_modules_attn_modules_c_attn_parameters_weight_'",
        "'TransformerEncoderLayerWithNormalisation2'",
        "torch.ops.aten.native_layer_norm.default",
        "tokens = tokenizer(text); model(token_type_ids=token_type_ids)",
        "f(token=tok, password=None)",
        "tensor([1, 2, 3], dtype=torch.int64)",
        "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "1 / 2 // alice",
        "false",
    ],
)
def test_what_is_no_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text
    document = canonical_json({"text": [text], text: 1})
    assert redactor.data(document) == document


def test_a_document_stays_a_document(redactor: Redactor) -> None:
    source = f"x = f(password='hunter2', key=\"{RANDOM}\")  # /home/alice/x.py"
    document: dict[str, Json] = {
        "token": "add_1", "password": {"n": "mul"}, "k\u00e9y": "\u00e9",
        "stack_trace": f'File "/home/alice/x.py", line 3\n  {source}',
        "value": 'nine "quoted" lives',
    }  # fmt: skip
    assert json.loads(redactor.data(canonical_json(document))) == {
        **document,
        "stack_trace": 'File "~/x.py", line 3\n  '
        "x = f(password='<redacted>', key=\"<redacted>\")  # ~/x.py",
        "value": "<redacted>",
    }


def test_a_secret_is_known_again_without_its_name(redactor: Redactor) -> None:
    assert "<redacted>" in redactor.text("password = 'correct horse' or secret = 'default'")
    assert redactor.text("LOAD_CONST ('correct horse')") == "LOAD_CONST ('<redacted>')"
    assert redactor.text("correct horse it was") == "<redacted> it was"
    assert redactor.text("aten.add.default, 'default'") == "aten.add.default, '<redacted>'"
    document = canonical_json({"target": "default"})
    assert redactor.data(document) == document


def test_bytes_that_are_no_text_are_withheld_when_they_hold_a_secret(redactor: Redactor) -> None:
    assert redactor.data(b"\x80\x04 /home/alice \x00") == b"\x80\x04 /home/alice \x00"
    with pytest.raises(Withheld):
        redactor.data(b"\x80\x04\x8c" + AWS.encode() + b"\x00")


def test_patterns_of_the_user_come_on_top() -> None:
    redactor = Redactor(Rules(patterns=(r"customer-\d+", "[Bb]lue")), ENVIRON)
    assert redactor.text("customer-12 has Blue and swordfish") == (
        "<redacted> has <redacted> and <redacted>"
    )
    only_theirs = Redactor(Rules("none", (r"customer-\d+",)), ENVIRON)
    assert only_theirs.text("customer-12 and swordfish") == "<redacted> and swordfish"


def test_a_pattern_that_breaks_a_document_costs_the_document() -> None:
    with pytest.raises(Withheld):
        Redactor(Rules(patterns=('"a":',)), {}).data(b'{"a":1}')


def test_none_takes_out_nothing() -> None:
    redactor = Redactor(Rules("none"), ENVIRON, ARGV)
    assert redactor.is_off
    assert redactor.text(f"{AWS} /home/alice") == f"{AWS} /home/alice"


def test_all_takes_out_source_strings_and_directories() -> None:
    redactor = Redactor(Rules("all"), {})
    text = 'File "/a/b/model.py", line 3, in f\n    return g("label", 3)\nValueError: bad \'thing\''
    assert redactor.text(text) == (
        "File \"<redacted>\", line 3, in f\nValueError: bad '<redacted>'"
    )
    document = canonical_json({"stack_trace": 'File "/a/b/c.py", line 1\n  x()', "target": "aten"})
    assert redactor.data(document) == b'{"stack_trace":"","target":"aten"}'


def test_rules_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="no redaction 'some'"):
        Rules("some")
    with pytest.raises(UsageError, match=re.escape("'(' is no regular expression")):
        Rules(patterns=("(",))

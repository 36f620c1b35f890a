"""What is taken out of text before it is stored, and what is left alone."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchreel.errors import UsageError
from torchreel.recorder.redaction import Redactor, Rules, Withheld, documents, paths, words
from torchreel.recorder.redaction.known.values import KnownValues
from torchreel.recorder.redaction.words import Words
from torchreel.recorder.redaction.writer import RedactingWriter
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json

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
        ("Authorization: Bearer abcdefgh.1234", "Authorization: Bearer <redacted>"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nxx\n-----END RSA PRIVATE KEY-----", "<redacted>"),
        ("https://me:hunter2@host/x", "https://<redacted>@host/x"),
        ("password=hunter2", "password=<redacted>"),
        ("<password>hunter2</password>", "<password><redacted></password>"),
        ("<password a='1'> hunter2 </password>", "<password a='1'> <redacted> </password>"),
        ("/login?password%3Dhunter2&n=1", "/login?password%3D<redacted>&n=1"),
        ("PASSWORD = 'correct horse'", "PASSWORD = '<redacted>'"),
        ('db_password: "correct horse"', 'db_password: "<redacted>"'),
        ('{"api_key": "abc"}', '{"api_key": "<redacted>"}'),
        ("connect(secret='x', n=3)", "connect(secret='<redacted>', n=3)"),
        ("token=abcd12345678", "token=<redacted>"),
        ("auth_token: abcd1234efgh = expired", "auth_token: <redacted> = expired"),
        ("api_key: 9f8e7d6c5b4a3210 = prod key", "api_key: <redacted> = prod key"),
        ("password: hunter2!x9 = old", "password: <redacted> = old"),
        ("password=hunter22x = wrong", "password=<redacted> = wrong"),
        ("wifi_password_2024: Wifi_Password_2024", "wifi_password_2024: <redacted>"),
        ("DB_PASSWORD=db_password", "DB_PASSWORD=<redacted>"),
        ("G['password'] == 'correct horse'", "G['password'] == '<redacted>'"),
        ("L['c']['api_secret'] != b'one-two'", "L['c']['api_secret'] != b'<redacted>'"),
        ("password: Optional[str] = 'hunter2'", "password: Optional[str] = '<redacted>'"),
        ("(password := 'hunter2')", "(password := '<redacted>')"),
        ('password = """hunter2"""', 'password = """<redacted>"""'),
        ("password = 'it\\'s me' # all", "password = '<redacted>' # all"),
        ("password=SecretStr('hunter2')", "password=SecretStr('<redacted>')"),
        ("cookie = 'a=b; c=d'", "cookie = '<redacted>'"),
        ("['--password', 'hunter2']", "['--password', '<redacted>']"),
        ("('client_secret', 'one-two')", "('client_secret', '<redacted>')"),
        ("getenv('HF_TOKEN', 'by-default-1')", "getenv('HF_TOKEN', '<redacted>')"),
        ("add('--token', default='hunter2')", "add('--token', default='<redacted>')"),
        ("https://0123456789abcdef@sentry/1", "https://<redacted>@sentry/1"),
        ("hooks.slack.com/services/T0/B0/XXXX", "hooks.slack.com/<redacted>"),
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
        ("is tensor([[1., nan],\n        [2e-3, 4.]])", "is tensor(<redacted>)"),
        ("a mask tensor([True, False])", "a mask tensor(<redacted>)"),
        ("was tensor(nan) then", "was tensor(<redacted>) then"),
        ("Parameter containing:\ntensor(-2.5, grad_fn=<X>)",
         "Parameter containing:\ntensor(<redacted>, grad_fn=<X>)"),
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
        "embed_tokens = 'input_ids'",
        "plan = {'embed_tokens': 'inputs_embeds'}",
        "f(token=tok, password=None)",
        "<tokens>what</tokens>",
        "class <secret> x",
        "if password > limit </x",
        "['token', 'segment', 'position']",
        "('password', 'name')",
        "G['token_type'] == 3",
        "x = torch.tensor([1, 2, 3], dtype=torch.int64)",
        "tensor(..., device='meta', size=(3,))",
        "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "1 / 2 // alice",
        "false",
    ],
)
def test_what_is_no_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text
    document = canonical_json({"text": [text], text: 1})
    assert redactor.data(document) == document


INPUT = "L_self_modules_token_type_embeddings_0_parameters_weight_"


def test_the_name_of_an_input_is_no_secret(redactor: Redactor) -> None:
    """FX gives a value the name of its input once more, and 'token' is a part of that."""
    text = f"def forward(self, {INPUT}):\n    {INPUT.lower()} = {INPUT}\n"
    assert redactor.text(text) == text
    assert redactor.text(f'{{"target": "{INPUT}"}}') == f'{{"target": "{INPUT}"}}'
    assert redactor.text(f"api_token = {INPUT}") == "api_token = <redacted>"


@pytest.mark.parametrize(
    "line",
    [
        "add = l_tokens_ + linear_1;  l_tokens_ = linear_1 = None",
        "mul_12: f32[2] = x * api_key;  api_key = view_12345 = l_tokens_ = None",
        "password_1 = addmm_10000000 = None",
    ],
)
def test_what_fx_deletes_is_no_secret(redactor: Redactor, line: str) -> None:
    """What was taken for one in the text of a graph was taken out of the graph, too."""
    assert redactor.text(f"    {line}\n    return (add,)\n") == f"    {line}\n    return (add,)\n"
    assert redactor.text("auth_token = abcd1234efgh = other") == "auth_token = <redacted> = other"


SECRET = "zqsecretwren7"


@pytest.mark.parametrize(
    "text",
    [
        f"# password is {SECRET}", f"# the api key is {SECRET}, do not share", f"token {SECRET}",
        f"invalid token {SECRET}!", f"bad token '{SECRET}'", f"the secret '{SECRET}' is wrong",
        f"password changed from {SECRET} to nothing", f"token `{SECRET}`", f"token <{SECRET}>",
        f"https://x.y/z?a=1&sig={SECRET}", f"https://x.y/?key={SECRET}",
        f"L['self'].tokens[0] == '{SECRET}'", f"L['self'].secrets['a'][1] == '{SECRET}'",
        f"match api_key:\n    case '{SECRET}':", f"if '{SECRET}' in passwords:",
        "the PIN=482913", "wrong PIN 482913", "pin: 482913",
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_document", [False, True])
def test_a_secret_in_prose_and_in_addresses(
    redactor: Redactor, text: str, as_document: bool
) -> None:
    found = redactor.data(json.dumps({"a": text}).encode()) if as_document else redactor.text(text)
    found = found.decode() if isinstance(found, bytes) else found
    assert "<redacted>" in found
    assert SECRET not in found
    assert "482913" not in found


@pytest.mark.parametrize(
    "text",
    [
        "token is None", "# token is a tensor of shape", "token embeddings", "secret is required",
        "token 3 of 12", "next token is int64[2]", "RuntimeError: token linear_1 not found",
        "SyntaxError: invalid token <string>, line 12", "# password is checked in login.py:12",
        "pin_memory=False", "mapping 123456", "tokens[0] == 5", "unexpected token 'foo'",
        "('    token = ' 'self.embed(x)')", "('    token = '\n 'self.embed(x)')",
    ],
)  # fmt: skip
def test_prose_without_a_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


@pytest.mark.parametrize("level", ["default", "all"])
def test_the_text_that_an_export_is_given(level: str) -> None:
    meta: Json = {"val": {"k": "str", "v": SECRET}}
    node: Json = {"args": [], "kwargs": {}, "meta": meta, "name": "password", "op": "placeholder"}
    document = canonical_json({"nodes": [{**node, "target": "password"}]})  # type: ignore[dict-item]
    found = Redactor(Rules(level), {}, ()).data(document)
    assert SECRET.encode() not in found
    assert b'"name":"password"' in found


def test_a_message_goes_as_a_whole_though_a_part_of_it_is_a_secret() -> None:
    redactor = Redactor(Rules("all"), {}, ())
    redactor.learn_texts((), [f"the password is {SECRET} word-of-mine"])
    assert redactor.text(f"Message: the password is {SECRET} word-of-mine") == "Message: <redacted>"


def test_the_argument_of_an_operator_is_no_secret_but_the_environments(redactor: Redactor) -> None:
    node = {
        "args": ["ij,kj->ik", {"n": "secret"}], "kwargs": {"mode": "reflect-9"}, "meta": {},
        "name": "api_key", "op": "call_function", "target": "fn:torch.functional.einsum",
    }  # fmt: skip
    first = {**node, "op": "placeholder", "name": "secret", "target": "secret", "args": []}
    document = canonical_json({"nodes": [first, node]})  # type: ignore[list-item, dict-item]
    strict = Redactor(Rules(), {"HUB_TOKEN": "reflect-9"}, ())
    source = "api_key = torch.einsum('ij,kj->ik', secret)"
    for found in (redactor, strict):
        assert "<redacted>" in found.text(source)
    assert redactor.data(document) == document
    assert redactor.text(source) == source
    assert b"ij,kj->ik" in strict.data(document)
    assert b"reflect-9" not in strict.data(document)


def test_what_a_function_of_the_programs_own_is_given_is_the_programs(redactor: Redactor) -> None:
    kwargs = {"password": SECRET}
    node = {
        "args": [SECRET],
        "kwargs": kwargs,
        "name": "x",
        "target": "fn:__main__.own",
        "meta": {},
    }
    first = {**node, "op": "placeholder", "target": "x", "args": []}
    document = {"nodes": [first, {**node, "op": "call_function"}]}
    redactor.text(f"password = '{SECRET}'")
    assert SECRET.encode() not in redactor.data(canonical_json(document))  # type: ignore[arg-type]


def test_strings_that_stand_for_one_are_known_as_one(redactor: Redactor) -> None:
    assert redactor.text("password = ('zq1' 'ab2' 'cd3')").count("<redacted>") == 3
    assert redactor.text("LOAD_CONST ('zq1ab2cd3')") == "LOAD_CONST ('<redacted>')"


@pytest.mark.parametrize(
    "annotation", ["f32[50, 16][16, 1]cpu", "i64[1, s0]", "bf16[][]cuda:0", "Sym(s0 + 1)", "b8[8]"]
)
def test_what_torch_notes_of_a_weight_stays(redactor: Redactor, annotation: str) -> None:
    text = f'def forward(self, embed_tokens_weight: "{annotation}", x: "{annotation}"):'
    assert redactor.text(text) == text
    assert json.loads(redactor.json({"graph": text})) == {"graph": text}


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


@pytest.mark.parametrize("end", ["\n", "\t", "\r", "\\", "\\\\", '"', "'", "\f\b"])
@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (GITHUB, "<redacted>"), ("sk-" + "a1B2" * 6, "<redacted>"), ("/home/bob/x.py", "~/x.py"),
        ("/home/alice/x.py", "~/x.py"), ("src/alice/x.py", "~/x.py"), ("/data/alice", "~"),
    ],
)  # fmt: skip
def test_a_line_of_a_document_is_searched_from_its_first_character(
    redactor: Redactor, end: str, found: str, kept: str
) -> None:
    """There it stands behind an escape, of which nothing may go with it."""
    assert json.loads(redactor.json([f"one{end}{found}"])) == [f"one{end}{kept}"]


def test_a_secret_is_known_again_without_its_name(redactor: Redactor) -> None:
    assert "<redacted>" in redactor.text("password = 'correct horse' or secret = 'default'")
    assert redactor.text("LOAD_CONST ('correct horse')") == "LOAD_CONST ('<redacted>')"
    assert redactor.text("correct horse it was") == "<redacted> it was"
    assert redactor.text("aten.add.default, 'default'") == "aten.add.default, '<redacted>'"
    document = canonical_json({"target": "default"})
    assert redactor.data(document) == document


def test_a_secret_is_known_again_however_it_is_quoted(redactor: Redactor) -> None:
    value = 'it\'s "me" \\o/'
    redactor.learn([value])
    for spelled in (value, repr(value), json.dumps(value), json.dumps(json.dumps(value))):
        assert "me" not in redactor.text(spelled), spelled
    document = json.loads(
        redactor.data(canonical_json({"message": f"for {value}", "code": repr(value)}))
    )
    assert document["message"] == "for <redacted>"
    assert "me" not in document["code"]


@pytest.mark.parametrize("value", ["grün-weiß-rot", 'grün "weiß" C:\\rot'])
@pytest.mark.parametrize("how", ["learned", "given"])
def test_a_secret_is_known_in_the_json_that_torch_writes(value: str, how: str) -> None:
    redactor = Redactor(Rules(), {"MY_TOKEN": value} if how == "given" else {}, [])
    if how == "learned":
        redactor.learn([value])
    for text in (value, repr(value), json.dumps(value)):
        written = json.dumps({"code": text}).encode()  # in ASCII
        for found in (redactor.text(text), redactor.data(written).decode()):
            assert "rot" not in found, text
            assert "<redacted>" in found


def test_a_part_that_is_known_hides_no_form() -> None:
    """The source has a formatted text, of which a part is what is known then."""
    redactor = Redactor(Rules(), {})
    redactor.text('f"Authorization: Digest username=\\"bob\\", response=\\"{zq}\\""')
    header = 'Authorization: Digest username="bob", response="zqwren7a"'
    assert redactor.text(header) == "Authorization: Digest <redacted>"


def test_a_secret_right_before_another_does_not_hide_it() -> None:
    redactor = Redactor(Rules(), {"API_TOKEN": "zqwren7a"})
    assert redactor.text("for zqwren7atensor([7.5, 8.5])") == "for <redacted>tensor(<redacted>)"


@pytest.mark.parametrize(
    "written", ["zq/wren%207%26a%3C", "zq%2Fwren+7%26a%3C", "zq/wren 7&amp;a&lt;"]
)
def test_a_known_secret_is_taken_out_of_addresses_and_pages(written: str) -> None:
    redactor = Redactor(Rules(), {"MY_PASSWORD": "zq/wren 7&a<"})
    assert redactor.text(f"GET http://h/?p={written} 403") == "GET http://h/?p=<redacted> 403"


@pytest.mark.parametrize(
    "source", ["password = 'it\\'s me' #", 'password = "it\\"s me" #', "password = 'C:\\\\' #"]
)
def test_a_quote_that_is_escaped_ends_no_secret(redactor: Redactor, source: str) -> None:
    found = json.loads(redactor.data(canonical_json({"lines": {"1": source}})))
    quote = source[11]
    assert found["lines"]["1"] == f"password = {quote}<redacted>{quote} #"
    assert redactor.text(source) == found["lines"]["1"]


def test_the_password_of_an_address_is_known_without_it() -> None:
    redactor = Redactor(Rules(), {"MY_DB": "postgres://me:sword-fish@host/x"}, [])
    assert redactor.text("sword-fish is wrong") == "<redacted> is wrong"


def test_a_file_tells_what_its_secrets_are(redactor: Redactor, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("passphrase = 'open-sesame'\n")
    redactor.learn_from(str(tmp_path / "settings.py"))
    redactor.learn_from(str(tmp_path / "missing.py"))
    assert redactor.text("open-sesame did not do") == "<redacted> did not do"


@pytest.mark.parametrize(
    "text",
    [
        "password = '" + "\\" * 4001, "password = '" + "\\x" * 2000, "password" * 1000,
        "token = " * 1000, "'token', '" * 1000, 'secret="""' + "a\n" * 2000,
    ],
)  # fmt: skip
def test_no_text_takes_long(redactor: Redactor, text: str) -> None:
    """What backtracks, would take years with one of these."""
    assert isinstance(redactor.text(text), str)


@pytest.mark.parametrize("level", ["default", "all"])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("api_key=SecretStr('one-horse')", "one-horse"),
        ("Settings(name='x', db_password='two horse', port=3)", "two horse"),
        ("token: str = field(default='three-horse')", "three-horse"),
        ("os.environ['API_SECRET'] = 'four-horse'", "four-horse"),
        ("<Keys.SECRET: 'five-horse'>", "five-horse"),
        ("create_engine('postgresql+psycopg://bob:six6horse@db:5432/x')", "six6horse"),
        ("redis://:seven7horse@cache:6379/0", "seven7horse"),
        ("headers={'Authorization': 'token eight8horse', 'X': 1}", "eight8horse"),
        ("users:\n- user:\n    client-key-data: bmluZWhvcnNl9\n", "bmluZWhvcnNl9"),
        ("  login bob\n  password tenhorse!\n", "tenhorse!"),
        ("mysql -u root -pelevenhorse1 db", "elevenhorse1"),
        ("psql 'host=db user=bob password=twelve-horse'", "twelve-horse"),
        ("curl -u bob:thirteenhorse https://x/y", "thirteenhorse"),
        ("PGPASSWORD=fourteenhorse psql", "fourteenhorse"),
        ("logger.info('password is %s', 'fifteen horse1')", "fifteen horse1"),
        ("Server=db;User Id=bob;Password=sixteenhorse;", "sixteenhorse"),
        ("aws_secret_access_key = seventeen7Horse", "seventeen7Horse"),
        ("auth=('bob', 'eighteen-horse')", "eighteen-horse"),
        ("HTTPBasicAuth('bob', 'nineteen-horse')", "nineteen-horse"),
        ("session.cookies.set('sid', 'twenty-horse1')", "twenty-horse1"),
        ("https://x/y?access_token=twentyone1horse&x=1", "twentyone1horse"),
        ("if 'twentytwo-horse2' == api_key:", "twentytwo-horse2"),
        ("passwords = ['x', 'twentythree-horse']", "twentythree-horse"),
        ("secret_number == 918273641", "918273641"),
        ("passphrase: |\n    twentyfour4horse\n", "twentyfour4horse"),
        ("secret = 'twenty' \"five-horse\"", "five-horse"),
        ("{'k': 'v', '': 'w', 'password': 'twentysix-horse'}", "twentysix-horse"),
        ("auth_header = 'twentyseven-horse'", "twentyseven-horse"),
        ("KEY = 'deadbeef0123456789deadbeef01234567'", "deadbeef0123456789"),
    ],
)
def test_idioms_of_other_libraries(level: str, text: str, secret: str) -> None:
    redactor = Redactor(Rules(level), {})
    nested = json.dumps({"message": json.dumps({"text": text})}).encode()
    spelled = redactor.text(text), redactor.json({"message": text}), redactor.data(nested).decode()
    for found in spelled:
        assert "<redacted>" in found
        assert secret not in found


RULES = paths.rules_for({"HOME": "/home/alice", "USER": "alice"})
PIECES = [
    *(anchor for anchor, _ in RULES), b"alice", b"/", b"a", b"-", b".", b'"', b"'", b"\\n",
    b"\\\\n", b" ", b"~", b":", b"\n",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join))
def test_looking_around_the_anchor_is_looking_everywhere(data: bytes) -> None:
    """A rule is tried where its anchor is, and finds what it finds when tried at each byte."""
    for rule in RULES:
        assert paths.replaced(rule, data, b"<>") == re.sub(rule[1], b"<>", data)


_LOOKED_FOR = (b"AKIA", b"ka", b"k", b"\xff\0", b"\xe1k", b"kI")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([b"AK", b"Ak", b"aK", b"k", b"I", b"A", b"i", b"\xff", b"\0"])),
    st.sampled_from([1, 2, 3, 1 << 20]),
)
def test_all_places_of_words_are_found(pieces: list[bytes], piece: int) -> None:
    """Words within one another and across one another are found, in whatever case."""
    data = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(words, "_PIECE", piece)
        found = Words(_LOOKED_FOR).places(data)
    lowered = data.lower()
    assert found == sorted(
        (at, word)
        for word in {word.lower() for word in _LOOKED_FOR}
        for at in range(len(data))
        if lowered.startswith(word, at)
    )


def test_bytes_that_are_no_text_are_withheld_when_they_hold_a_secret(redactor: Redactor) -> None:
    assert redactor.data(b"\x80\x04 /home/alice \x00") == b"\x80\x04 /home/alice \x00"
    with pytest.raises(Withheld):
        redactor.data(b"\x80\x04\x8c" + AWS.encode() + b"\x00")


def test_what_the_environment_gets_later_is_known() -> None:
    environ = {"A_TOKEN": "here-from-the-start"}
    redactor = Redactor(Rules(), environ)
    assert redactor.text("here-from-the-start come-later") == "<redacted> come-later"
    environ |= {"B_TOKEN": "come-later"}
    del environ["A_TOKEN"]
    redactor.look_again()
    assert redactor.text("here-from-the-start come-later") == "<redacted> <redacted>"


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
    stored = canonical_json({"nodes": [{"stack_trace": 1}], "stack_traces": ["a\\", 'f("b"]) # [']})
    assert redactor.data(stored) == b'{"nodes":[{"stack_trace":1}],"stack_traces":""}'
    graph = '\n    \n        # File: /a/b.py:3 in f, code: y = g("x")\n        y: "f32[2]" = x'
    assert redactor.text(graph + " " * 400) == '\n        y: "f32[2]" = x' + " " * 400
    assert redactor.text(graph) == '\n        y: "f32[2]" = x'
    assert redactor.data(canonical_json([graph])) == b'["\\n        y: \\"f32[2]\\" = x"]'
    guard = '| +- TENSOR: check(x)  # y = "x" # sin  # a/b.py:3 in f\n| +- OTHER  # c.py:4 in g'
    assert redactor.text(guard) == "| +- TENSOR: check(x)\n| +- OTHER  # c.py:4 in g"
    assert redactor.data(canonical_json([guard])) == canonical_json([redactor.text(guard)])
    apostrophes = canonical_json(["it doesn't", {"code": "L['self'] is not Bob's"}])
    assert (
        redactor.data(apostrophes) == b'["it doesn\'t",{"code":"L[\'<redacted>\'] is not Bob\'s"}]'
    )


def test_all_takes_a_setting_out_of_the_factors_of_a_key() -> None:
    factors = ["[" + "a2" * 26 + f"] inductor_config[{name}]" for name in ("regex", "cpp")]
    found = Redactor(Rules("all"), {}).text(f"{factors[0]}: Zqwren\n{factors[1]}: True")
    assert found == f"{factors[0]}: <redacted>\n{factors[1]}: True"


def test_rules_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="no redaction 'some'"):
        Rules("some")
    with pytest.raises(UsageError, match=re.escape("'(' is no regular expression")):
        Rules(patterns=("(",))


STACK = '  File "m.py", line 1, in f\n    y = x.to(\'cuda\') + secret("k")\n'
LINES = [
    'G(x) # y = "z" # w  # a dir/t.py:3 in f',
    "G2(x)  # y = z  # t.py:4 in f",
    f'Stack:\n{STACK}           ^^^^\n  File "n.py", line 1, in g',
    f"tangent_source_stack_traces=[{STACK!r}\n {STACK[2:]!r}, None]",
    'a\n\n    # File: x.py:3 in f, code: y = secret("x")\n    b = a',
]
"""What torch writes about the program, in lines of it."""


@pytest.mark.parametrize("line", LINES)
def test_all_takes_lines_of_source_out_of_documents_too(line: str) -> None:
    redactor = Redactor(Rules("all"), {})
    long = line + "." * 400  # short texts are remembered
    documents = [canonical_json([line, "hello world"]), canonical_json({"a": line, "b": "hello"})]
    for found in (redactor.text(line).encode(), redactor.text(long).encode()):
        assert b"secret" not in found
        assert b"y = " not in found
    for data in documents:
        found = redactor.data(data)
        assert b"secret" not in found
        assert b"y = " not in found
        assert b'"hello' in found


def test_all_takes_lines_out_of_torchs_stacks_and_keeps_the_rest() -> None:
    redactor = Redactor(Rules("all"), {})
    trace = canonical_json({"stack": [{"line": 3, "name": "f", "loc": "y = secret(x)"}]})
    assert redactor.data(trace) == b'{"stack":[{"line":3,"loc":"","name":"f"}]}'
    code = canonical_json(["failed: 'def f():\\n    # File: x.py:3 in f, code: y\\n    return'"])
    assert parse_json(redactor.data(code)) is not None


@pytest.mark.parametrize("piece", [" ", " # ", "\t# a.py:1 in ", "File ", "'\\", '\\"', "\n"])
def test_all_takes_no_longer_the_more_there_is_of_anything(piece: str) -> None:
    redactor = Redactor(Rules("all"), {})
    for data in (canonical_json([piece * 30_000]), (piece * 30_000).encode()):
        began = time.process_time()
        redactor.data(data)
        assert time.process_time() - began < 5


def test_a_value_of_the_environment_is_never_forgotten() -> None:
    redactor = Redactor(Rules(), {"DB_PASSWORD": "plain words only x"})
    redactor.learn(f"learned value number {number} here" for number in range(5001))
    assert redactor.text("it is plain words only x, they say") == "it is <redacted>, they say"


def test_a_value_that_is_learned_while_another_thread_searches_is_found_next() -> None:
    known = KnownValues()
    known.add("first value, long enough")
    build = known._build

    def learning() -> Any:
        found = build()
        known.add("second value, long enough")
        return found

    known._build = learning  # type: ignore[method-assign]
    known.removed_from(b"nothing")
    known._build = build  # type: ignore[method-assign]
    assert known.removed_from(b"a second value, long enough b") == b"a <redacted> b"


@pytest.mark.parametrize(
    "value", ["token = 'abcdefgh1", "gcc -DPASSWORD='x y z", 'password: "hunt']
)
def test_a_text_with_an_open_quote_stays_json(value: str) -> None:
    assert isinstance(json.loads(Redactor(Rules(), {}).json(value)), str)


@pytest.mark.parametrize(
    "text",
    ["swordfish", "ValueError: swordfish\n", "Message: swordfish\n  Hint: none", "a\nswordfish"],
)
@pytest.mark.parametrize("level", ["default", "all"])
def test_a_word_that_is_secret_is_taken_out_where_a_line_says_nothing_else(
    text: str, level: str
) -> None:
    redactor = Redactor(Rules(level), {})
    redactor.learn(["swordfish"])
    documents = ({"message": text}, [text], {"options": {"deep": [{"note": text}]}})
    found = [redactor.text(text), *map(redactor.json, documents)]  # type: ignore[arg-type]
    for one in found:
        assert "swordfish" not in one
        assert "<redacted>" in one


@pytest.mark.parametrize("word", ["mean", "inductor", "default", "tanh"])
def test_a_word_of_torch_stays_where_nothing_marks_a_text(redactor: Redactor, word: str) -> None:
    redactor.learn([word])
    for document in ({"target": word}, {word: 1}, [word], {"a": f"b: {word}"}):
        assert json.loads(redactor.data(canonical_json(document))) == document  # type: ignore[arg-type]
    assert redactor.text(f"f({word!r})") == "f('<redacted>')"


def test_a_piece_of_a_formatted_text_is_known_as_well(redactor: Redactor) -> None:
    redactor.learn(["swordfish"])
    assert redactor.text("f'swordfish{x}'") == "f'<redacted>{x}'"
    assert redactor.text("f'{x}swordfish'") == "f'{x}<redacted>'"


@pytest.mark.parametrize("key", ["job_id", "pgo_extra_read_key", "cache_key"])
def test_all_takes_out_the_names_of_jobs_in_torchs_dumps(key: str) -> None:
    redactor = Redactor(Rules("all"), {})
    payload = json.dumps({key: "job44:v1"})
    assert "job44" not in redactor.json({"payload": payload})
    assert redactor.json({"cache_key": "fabc234"}) == '{"cache_key":"fabc234"}'


def test_the_password_that_an_address_tells_is_known_elsewhere(redactor: Redactor) -> None:
    assert "hunter" not in redactor.text("'https://bob:hunter2x9@db/x' said hunter2x9")
    assert "wren" not in redactor.text("Authorization: Bearer zq77wren99 for 'zq77wren99'")


def test_what_has_been_redacted_is_not_learned(redactor: Redactor) -> None:
    """Bytes behind it would be missed, and with them what holds it: a frame bundle."""
    data = b"\x80\x04X\x0d\x00\x00\x00--api-key '<redacted>'q\x1bX\x01\x00\x00\x00aq\x1c'"
    assert redactor.data(data) == data
    redactor.learn(["Bearer <redacted>"])
    assert redactor.text("'Bearer <redacted>' it is") == "'Bearer <redacted>' it is"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Token('zqwren')", "Token('<redacted>')"),
        ("TokenError('zqwren')", "TokenError('zqwren')"),
        ("TokenError('zq7wren9')", "TokenError('<redacted>')"),
        ("tokenizer('zqwren')", "tokenizer('zqwren')"),
        ("code: get_token(x,\n  y: 'f32[3]'", "code: get_token(x,\n  y: 'f32[3]'"),
        ("?api_key=zqwren&x=1", "?api_key=<redacted>&x=1"),
        ("run --api-key=zqwren", "run --api-key=<redacted>"),
        ("f(api_key=zqwren)", "f(api_key=zqwren)"),
        ("ALTER USER bob PASSWORD 'zqwren'", "ALTER USER bob PASSWORD '<redacted>'"),
        ("Pwd=zqwren;", "Pwd=<redacted>;"),
        ("'password' => 'zqwren'", "'password' => '<redacted>'"),
        ("password=>zqwren7", "password=><redacted>"),
        ("[{'name': 'DB_PASSWORD', 'value': 'zqwren7a'}, {'name': 'HOME', 'value': 'here1234'}]",
         "[{'name': 'DB_PASSWORD', 'value': '<redacted>'}, {'name': 'HOME', 'value': 'here1234'}]"),
        ("- name: DB_PASSWORD\n  value: zqwren7a\n- name: HOME\n  value: here1234",
         "- name: DB_PASSWORD\n  value: <redacted>\n- name: HOME\n  value: here1234"),
        ("Env(name='API_TOKEN', value='zqwren7a')", "Env(name='API_TOKEN', value='<redacted>')"),
        ("'{\"password\": \"zqw\\\\\"ren\"}'", "'{\"password\": \"<redacted>\"}'"),
        ("Signature=zqwren7a, x", "Signature=<redacted>, x"),
        ("credentials = {'bob': 'zqwren', 'token': 'x'}; L['token'] is L['bob']",
         "credentials = {'bob': '<redacted>', 'token': '<redacted>'}; L['token'] is L['bob']"),
        ("['   x = ' 'get_secret(\"zq\", '\n  'y, \"sum\")']",
         "['   x = ' 'get_secret(\"<redacted>\", '\n  'y, \"sum\")']"),
    ],
)  # fmt: skip
def test_calls_and_pairs_in_a_text(redactor: Redactor, text: str, kept: str) -> None:
    assert redactor.text(text) == kept


def test_all_leaves_no_part_of_a_stack_in_which_there_is_a_secret() -> None:
    stack = (
        """tangent_source_stack_traces=['    return '\n  'apply_secret("ij", '\n  'y, "sum")'])"""
    )
    redactor = Redactor(Rules("all"), {})
    assert redactor.text(stack) == "tangent_source_stack_traces=[])"
    assert json.loads(redactor.json({"a": stack})) == {"a": "tangent_source_stack_traces=[])"}


@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_known_secret_is_taken_out_in_hex_and_base64(redactor: Redactor, before: str) -> None:
    """Of base64, what stands at its ends depends on what is beside it."""
    import base64
    from urllib.parse import quote

    secret = "zq/7 wren+9-lark"
    redactor.learn([secret])
    data = f"{before}{secret}zz".encode()
    urlsafe = base64.urlsafe_b64encode(data).decode()
    for text in (base64.b64encode(data).decode(), urlsafe, data.hex(), quote(secret, safe="")):
        assert "<redacted>" in redactor.text(f"sent {text}.")
        assert text[4:-6] not in redactor.json([text])


def test_a_directory_under_the_name_of_a_password_is_none(
    redactor: Redactor, tmp_path: Path
) -> None:
    """PWD and OLDPWD are two: with them, the names of all files of the program went."""
    redactor.learn([str(tmp_path), str(tmp_path / "none")])
    assert "redacted" not in redactor.text(f"{tmp_path}/program.py").replace("none", "")
    assert "redacted" in redactor.text(f"= {tmp_path / 'none'}")


class _Rows:
    """Keeps the rows that are written."""

    connection = None

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, table_name: str, **columns: object) -> int:
        self.rows.append(columns)
        return len(self.rows)


@pytest.mark.parametrize("mode", ["default", "all"])
def test_no_level_keeps_a_secret_of_the_command_line_that_the_one_below_takes_out(
    mode: str,
) -> None:
    argv = ["train.py", "-uswordfish", "--swordfish", "-Dkey", "swordfish", f"-p{GITHUB}"]
    rows = _Rows()
    writer = RedactingWriter(rows, Redactor(Rules(mode), ENVIRON, argv))  # type: ignore[arg-type]
    writer.add("recordings", argv=argv, cwd="/home/alice/swordfish")
    writer.add("environment", key="gxx", value="gcc 12.3 (/home/alice/tools swordfish)")
    writer.add("environment", key="env:MODE", value="swordfish")
    text = str(rows.rows)
    assert not any(word in text for word in ("swordfish", "/home/alice", GITHUB))
    assert "gcc 12.3" in text
    words = parse_json(str(rows.rows[0]["argv"]))
    glued = "-D<redacted>" if mode == "all" else "-Dkey"
    assert words == [
        "train.py", "-u<redacted>", "--<redacted>" if mode == "default" else "<redacted>", glued,
        "<redacted>", "-p<redacted>",
    ]  # fmt: skip


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([4829137, -4829137, "4829137", "a 4829137", ",4829137,", "]", '"', "\\", ":"])
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def _expected(value: Any) -> Any:
    if isinstance(value, list):
        return [_expected(item) for item in value]
    if isinstance(value, dict):
        return {name: _expected(item) for name, item in value.items()}
    is_number = isinstance(value, int) and not isinstance(value, bool)
    text = str(value) if is_number else value
    if not isinstance(text, str) or "4829137" not in text:
        return value
    return text.replace("4829137", "*")


@given(_JSON, st.booleans())
def test_numbers_in_a_document_are_changed_as_strings_are(value: Any, spaced: bool) -> None:
    data = json.dumps([value], separators=None if spaced else (",", ":")).encode()
    places = [found.start() for found in re.finditer(b"4829137", data)]
    changed = documents.rewritten(data, places, lambda text: text.replace(b"4829137", b"*"))
    assert json.loads(changed) == [_expected(value)]


def test_a_secret_that_is_a_number_leaves_a_document_readable(redactor: Redactor) -> None:
    redactor.learn(["48291374", "-50000.0"])
    kept = redactor.data(b'{"member":"x","args":["float",null,48291374,-50000.0,148291374]}')
    # What is computed with is no secret, whatever it is called (TOKEN_SELF_ATTN_VALUE = -5e4).
    assert parse_json(kept) == {
        "member": "x", "args": ["float", None, "<redacted>", -50000.0, 148291374]
    }  # fmt: skip

"""What the syntax of a program says is secret, and what it does not."""

import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks.canaries import ways
from torchreel.recorder.redaction import Redactor, Rules
from torchreel.recorder.redaction.known.syntax import texts

SURE = "zqwrenlark"
"""A secret that might be a word."""


@pytest.mark.parametrize(
    "source",
    [
        statement
        for way, statements in ways.WAYS.items()
        if ways.KEPT.get(way, ()) == ()
        for statement in statements
    ],
)
def test_what_a_program_names_is_known_where_nothing_names_it(source: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(source.format(SURE))
    redactor = Redactor(Rules(), {})
    redactor.learn_from(str(file))
    assert SURE not in redactor.text(f"cannot log in as {SURE!r}")
    assert SURE not in redactor.text(source.format(SURE))


@pytest.mark.parametrize(
    "source",
    [
        "tokens = tokenizer('text', padding='longest')", "token_type = 'segment'",
        "for key in ('weight', 'bias'): pass", "if key == 'weight': pass", "key = cfg['hidden']",
        "token = os.environ['HF_TOKEN']", "token = os.getenv('HF_TOKEN')",
        "token = open('token.txt')",
        "secret = F.interpolate(x, mode='bilinear')", "token = self.embed(x, reduction='mean')",
        "raise AuthError('cannot log in')", "parser.add_argument('--token', help='of the hub')",
        "def get_token():\n    '''Return it.'''\n    raise ValueError('there is none')",
        "key = 'linear_1'", "key = 'cuda:0'", "auth = None", "cfg = {'device': 'token'}",
        "token = values['first']", "author = 'somebody'", "self.token_embed.mode = 'mean'",
        "login(1", "x = 1if y else 'token'",
    ],
)  # fmt: skip
def test_what_no_name_tells_is_left(source: str) -> None:
    assert texts(source).secret == set()


def test_parts_of_a_text_are_known_as_well() -> None:
    found = texts("Token('zqone' 'zqtwo')\ntoken = f'{x}zqthree{y}'").secret
    assert found == {"zqonezqtwo", "zqone", "zqtwo", "zqthree"}


def test_the_parser_warns_of_nothing() -> None:
    """What it writes to stderr, the program would not write by itself."""
    source = textwrap.dedent(r"""
        token = "a\d\400"
        other = rb'\d' "\\d" if 0x1for x in () else 1or 2
    """)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts(source)
        assert texts(r"token = 'zq\dx'").secret == {r"zq\dx"}


def test_what_was_typed_into_a_notebook_is_looked_through() -> None:
    import linecache

    name = "<ipython-input-1-zq>"
    linecache.cache[name] = (1, None, ["Token('zqwrenlark')\n"], name)
    redactor = Redactor(Rules(), {})
    redactor.learn_from(name)
    del linecache.cache[name]
    assert SURE not in redactor.text(f"'{SURE}'")


def test_the_program_of_a_command_is_looked_through() -> None:
    program = "import hmac; hmac.compare_digest(token, 'zqwrenlark')"
    command = ["python", "-c", program, "-x"]
    redactor = Redactor(Rules(), {}, command)
    assert SURE not in redactor.json(command)
    assert SURE not in redactor.text(f"ValueError: {SURE}")


@pytest.mark.parametrize("value", ["supersecret", "super-secret", "tokenish", "Password1"])
def test_a_value_may_have_the_word_of_a_name_in_it(value: str) -> None:
    assert texts(f"password = {value!r}").secret == {value}


def test_globals_that_a_frame_does_not_name_are_looked_at() -> None:
    from torchreel.recorder.frames.secrets import of_frame

    scope: dict[str, object] = {
        "api_token": "zqwren", "key": "weight", "KEYS": {"hub_key": "zq7wren9"}, "note": "plain",
    }  # fmt: skip
    exec(compile("def f(x): return x", "/srv/program.py", "exec"), scope)
    assert of_frame(scope["f"].__code__, scope, {}, ()) == {"zqwren"}  # type: ignore[attr-defined]


def test_modules_and_classes_of_the_program_are_looked_at() -> None:
    """What another file holds under a name is passed on without it."""
    import types

    from torchreel.recorder.frames.secrets import of_frame

    own, installed = types.ModuleType("settings"), types.ModuleType("library")
    own.__dict__.update(__file__="/srv/settings.py", PASSWORD="zqwren")
    installed.__dict__.update(__file__="/x/site-packages/library.py", PASSWORD="zqlark")
    config = type("Config", (), {"hub_token": "zqfinch", "note": "plain"})
    scope: dict[str, object] = {"settings": own, "library": installed, "Config": config}
    exec(compile("def f(x): return x", "/srv/program.py", "exec"), scope)
    found = of_frame(scope["f"].__code__, scope, {}, ())  # type: ignore[attr-defined]
    assert found == {"zqwren", "zqfinch"}


def test_names_that_are_no_plain_text_are_passed_over() -> None:
    """A program may put anything into its globals; to hash a name of its own would run its code."""
    from torchreel.recorder.frames.secrets import of_frame

    class Loud(str):
        def __hash__(self) -> int:
            seen.append(self)
            return super().__hash__()

    seen: list[str] = []
    scope: dict[object, object] = {7: 3, Loud("hub_token"): "zqfinch", "my_password": "zqwren"}
    exec(compile("def f(x): return x", "/srv/program.py", "exec"), scope)  # type: ignore[arg-type]
    seen.clear()
    assert of_frame(scope["f"].__code__, scope, {}, ()) == {"zqwren"}  # type: ignore[attr-defined, arg-type]
    assert seen == []


def test_nested_calls_are_not_walked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchreel.recorder.redaction.known import name_strength

    asked: list[str] = []
    monkeypatch.setattr(name_strength, "is_value", lambda text, strength: asked.append(text))
    words = ", ".join(f"'v{number}'" for number in range(100))
    texts(f"x = {'token(' * 50}{words}{')' * 50}\n")
    assert 100 <= len(asked) <= 200


def test_an_expression_that_is_too_deep_hides_no_other() -> None:
    long = " + ".join(["'zqa1b2'"] * 2000)
    assert texts(f"token = {long}\npassword = 'zqwren'\n").secret >= {"zqwren"}


@pytest.mark.parametrize(
    "source", ["x = 0xfor 1", "x = 1.if y else 2", "x = 1jif y else 2", r"x = b'\N'", r"x = b'\u1'"]
)
def test_numbers_and_bytes_that_the_parser_warns_of(source: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        texts(f"{source}\ny = 'plain'\n")
    assert seen == []


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/lib/python3/site-packages/m/hooks.py", {"qwren7Zt", "hunter"}),
        ("/home/me/program.py", {"attentions", "qwren7Zt", "hunter"}),
    ],
)
def test_a_word_under_key_is_no_secret_in_a_library(file: str, expected: set[str]) -> None:
    """A library calls much a key; what may be no word goes there, too, and a password anyway."""
    from torchreel.recorder.frames.secrets import of_frame

    scope: dict[str, Any] = {}
    exec(compile("def f(key, session_key, password): return key", file, "exec"), scope)
    values = {"key": "attentions", "session_key": "qwren7Zt", "password": "hunter"}
    assert of_frame(scope["f"].__code__, {}, values, ()) == expected


def test_what_a_function_of_the_same_source_is_given_for_a_password_is_secret() -> None:
    """Also an operator, which is called by another name, and a class."""
    source = (
        "@torch.library.custom_op('mine::fetch', mutates_args=())\n"
        "def fetch(x, password: str, n: int): return x\n"
        "class Client:\n"
        "    def __init__(self, host, api_key): ...\n"
        "    def go(self, mode, token): ...\n"
        "torch.ops.mine.fetch(x, 'zqwren1a', 'plain')\n"
        "Client('myhost', 'zqwren2a').go('fast', 'zqwren3a')\n"
        "other('plain', 'zqwren4a')\n"
    )
    assert texts(source).secret == {"zqwren1a", "zqwren2a", "zqwren3a"}

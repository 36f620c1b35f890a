"""The ways in which a program says that a text is secret, and a program that uses all of them.

Each way is Python in which `{}` is a secret.  It is written twice: with a secret of letters and
digits, and with one of letters alone, as `hunter` is.  The program says all of them again where
nothing names them: in the message of an exception, between quotes, bare, in hex and in base64.
"""

# ruff: noqa: E501 (lines of the program)

from __future__ import annotations

import textwrap
from typing import NamedTuple

MIXED, LETTERS = "letters and digits", "letters alone"

WAYS: dict[str, tuple[str, ...]] = {
    "value of a name": (
        "token = '{}'", "token: str = '{}'", "password = user = '{}'", "user, password = 'bob', '{}'",
        "cfg.token.value = '{}'", "cfg.token = '{}'", "(token := '{}')", "token += '{}'", "for token in ['{}', 'b']: pass",
        "token: Annotated[str, 'doc'] = '{}'", "token = (  # of today\n    '{}')", "SECRETS = dict(bob='{}')",
        "SECRETS.bob = '{}'", "passwords = {{'bob': '{}'}}", "token = b'{}'", "token = \\\n    '{}'", "db_pw = '{}'",
        "creds = ('bob', '{}')", "passcode = '{}'", "jwt = '{}'",
    ),
    "value of a name that may mean something else": (
        "db_pass = '{}'", "hmac_key = '{}'", "KEY = '{}'", "session_key = '{}'", "otp = '{}'", "PRIVATE = '{}'",
        "dsn = '{}'", "webhook = '{}'", "cfg = {{'salt': '{}'}}", "login('bob', '{}')", "tokens = ['a', '{}']",
    ),
    "an expression that a name is given": (
        "token = os.getenv('X') or '{}'", "token = None if x is None else '{}'", "token = (lambda: '{}')()",
        "token = '-'.join(('a', '{}'))", "token = '{}'.strip()", "token = os.getenv('X', '{}')", "os.getenv('API_TOKEN') or '{}'",
        "token = [*other, '{}']", "token = f'{}{{x.dim()}}'", "token = 'a' + ('b' + '{}')", "token = bytes('{}', 'ascii')",
    ),
    "a call whose result a name is given": (
        "token = other.load(3)(x, '{}')", "token = [one for one in find('{}')]", "token = await_(find)('{}')",
    ),
    "parameter": (
        "def f(x, token='{}'): pass", "def f(x, *, api_key: str = '{}'): pass", "g = lambda token='{}': token",
        "async def f(x, token='{}', /): pass",
    ),
    "argument of a call": (
        "login(token='{}')", "login('bob', password='{}')", "cfg.update(token='{}')", "setattr(cfg, 'token', '{}')",
        "os.environ.setdefault('API_TOKEN', '{}')", "cfg.set('token', '{}')", "redis.put('auth:token', b'{}')",
        "dict([('token', '{}')])", "parser.add_argument('--token', default='{}')", "hmac.compare_digest(token, '{}')",
        "token.startswith('{}')", "check(self.api_key, '{}')", "requests.get('u', auth=('bob', '{}'))",
    ),
    "function with a telling name": (
        "Token('{}')", "client = TokenClient('host', '{}')", "getpass.getpass('{}')", "set_password('bob', '{}')",
        "SecretStr('{}')", "Credentials('bob', pw='{}')", "x.authenticate('{}')", "Token('{}' '-a')",
        "with use_token('{}') as t: pass", "@auth('{}')\ndef f(x): pass", "@requires_token('{}')\nclass A: pass",
    ),
    "exception with a telling name": ("raise AuthError('{}')", "error = TokenError('{}')"),
    "subscript": (
        "cfg['token'] = '{}'", "cfg['auth']['value'] = '{}'", "os.environ['API_TOKEN'] = '{}'",
        "headers['Authorization'] = '{}'", "SECRETS['bob'] = '{}'", "headers['Authorization'] = 'Bearer ' + '{}'",
    ),
    "dictionary": (
        "cfg = {{'token': '{}'}}", "cfg = {{'secret': {{'value': '{}'}}}}", "cfg = {{'auth': ['bob', '{}']}}",
        "cfg = {{**cfg, 'x_api_key': '{}'}}", "pairs = [('token', '{}')]",
    ),
    "comparison": (
        "if token == '{}': pass", "if '{}' != token: pass", "if token in {{'{}', 'b'}}: pass", "ok = token.value == '{}'",
        "match token:\n    case 'a' | '{}': pass", "match x:\n    case {{'token': '{}'}}: pass",
        "match x:\n    case Token(value='{}'): pass",
    ),
    "class or function with a telling name": (
        "class A:\n    token = '{}'", "class Secrets:\n    db = '{}'", "class Token(str, Enum):\n    A = 'a'\n    B = '{}'",
        "def get_token():\n    return '{}'", "def token(self): yield '{}'",
    ),
    "formatted text": (
        "url = 'token %s' % '{}'", "print('token {{}}'.format('{}'))", "log.info('user %s has token %s', user, '{}')",
        "print('token', '{}')", "print(f\"token={{'{}'}}\")",
    ),
    "address, option or header in a text": (
        "url = 'https://bob:{}@host/x'", "url = 'amqp://:{}@host'", "url = 'https://host/x?access_token={}&b=1'",
        "cmd = 'train.py --api-key={}'", "cmd = \"run --api-key '{}'\"", "head = 'Authorization: Bearer {}'",
        "js = '{{\"token\": \"{}\"}}'", "sql = \"ALTER USER bob PASSWORD '{}'\"", "ini = 'Server=x;Pwd={};'",
    ),
    "other pair in a text": (
        "cmd = 'HF_TOKEN={} python x.py'", "yaml = 'api_key: {}'", "head = 'X-Auth-Token: {}'",
        "url = 'https://host/x?X-Amz-Signature={}'",
    ),
    "prose": ("# the password is {}", "# token: {}", "'''Use the api key {} here.'''", "note = 'invalid token {}'"),
    "nothing that names it": ("note = '{}'", "connect('bob', '{}')", "with open('{}') as token: pass"),
}  # fmt: skip
"""Statements of Python, by way."""


ALL_STAY = (MIXED, LETTERS)
KEPT: dict[str, tuple[str, ...]] = {
    "value of a name that may mean something else": (LETTERS,),
    "a call whose result a name is given": (LETTERS,),
    "exception with a telling name": (LETTERS,),
    "other pair in a text": (LETTERS,),
    "prose": (LETTERS,),
    "nothing that names it": ALL_STAY,
}
"""Kinds of secrets that the level `default` is not sure to find, by way; none of all others."""


class Secret(NamedTuple):
    """A canary: the way in which it is named, and the statement."""

    text: str
    way: str
    kind: str
    statement: str


def _letters(number: int) -> str:
    return "zq" + "".join("bcdfghjkmp"[int(digit)] for digit in f"{number:03d}") + "wrenlark"


def secrets() -> list[Secret]:
    """Return one secret of each kind for each statement."""
    found = []
    for way, statements in WAYS.items():
        for statement in statements:
            number = len(found)
            found.append(Secret(f"zq{number:03d}wren{number:03d}x", way, MIXED, statement))
            found.append(Secret(_letters(number), way, LETTERS, statement))
    return found


SECRETS = secrets()
FILE = "said.json"
"""Beside the program: what it says again, with nothing that names it."""

_HEAD = """
import base64, json, os, torch

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "said.json")) as file:
    WORDS = json.load(file)

def attempt(f, *args, **options):
    torch._dynamo.reset()
    try:
        torch.compile(f, **options)(*args)
    except Exception as error:
        print(type(error).__name__)

x = torch.ones(4)
"""
_TAIL = """
def model(x, words):
    if x.dim() == 9:
        never(x)
    if words["first"] == "no":
        x = x + 1
    return torch.sin(x) * 2

def fails(x, token):
    if token == "yes":
        x = x + 1
    pooled = torch.nn.functional.fractional_max_pool2d(x, 0, output_size=(3, 3))
    return torch.nn.functional.pad(pooled, (1, 1, 1, 1))  # pytorch#188218: fails in Inductor
def has_digit(text):
    return any(map(str.isdigit, text))
def quoting(gm, inputs):
    raise ValueError(f"these: {list(WORDS.values())}")
def bare(gm, inputs):
    raise ValueError("these: " + " ".join(filter(has_digit, WORDS.values())))
def encoded(gm, inputs):
    data = [word.encode() for word in filter(has_digit, WORDS.values())]
    raise ValueError([*map(base64.b64encode, data), *map(bytes.hex, data)])

attempt(model, x, {"first": "yes"})
attempt(model, x, {"first": "yes"}, backend=quoting)
attempt(model, x, {"first": "yes"}, backend=bare)
attempt(model, x, {"first": "yes"}, backend=encoded)
attempt(fails, torch.randn(1, 2, 8, 8), "no")
attempt(lambda x, words: [x for word in words if word != "no"], x, list(WORDS.values()), backend="eager")
"""


def program() -> str:
    """Return the program: no statement is executed, all of them stand in the code of a frame."""
    parts = [_HEAD]
    for number in range(0, len(SECRETS), 20):
        some = SECRETS[number : number + 20]
        body = "\n".join(secret.statement.format(secret.text) for secret in some)
        never = textwrap.indent(body, " " * 8)
        parts.append(
            f"def part{number}(x, cfg, other, user):\n    if x.dim() == 9:\n{never}\n    return x.cos()\n"
        )
        parts.append(f"attempt(part{number}, x, {{}}, [], 'bob', backend='eager')\n")
    return "\n".join([*parts, _TAIL])

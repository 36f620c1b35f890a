"""A program with a canary in every place where a secret can stand, and what each of them is.

A canary is `plain` (text without a telling name), `named` (behind a name that says that it is
secret) or a `form` (a token that says so itself).  `docs/redaction.md` says for each place and
level which of them stay; `test_redaction_table` looks for them.
"""

# ruff: noqa: E501 (lines of the program)

from __future__ import annotations

from typing import NamedTuple

PLAIN, NAMED, FORM = "plain", "named", "form"


class Canary(NamedTuple):
    """What to look for, and where it stands."""

    place: str
    kind: str
    text: str


CANARIES: list[Canary] = []


def new(place: str, kind: str = PLAIN, text: str | None = None) -> str:
    """A text that is nowhere else, noted for its place."""
    text = text or f"zq{len(CANARIES):03d}wren"
    CANARIES.append(Canary(place, kind, text))
    return text


def number(place: str, kind: str = PLAIN) -> str:
    """An integer that is nowhere else."""
    return new(place, kind, f"{918273000 + len(CANARIES)}")


# Put together here, so that this file holds none that a scanner would report.
def form(place: str, beginning: str | None = None) -> str:
    """A token of a known form: of the one with that beginning, or one after the other."""
    index = len(CANARIES)
    tail = f"{index:03d}"
    made = {
        "sk_": "live_" + "aB3dE5fG7hI9jK1l" + tail, "npm": "_" + "aB3dE5fG7" * 4 + tail,
        "pypi-": "AgEIcHlwaS5vcmc" + "aB3dE5fG7hI9" * 5 + tail, "gh": "u_" + "aB3dE5fG7" * 4 + tail,
        "ghr": "_" + "aB3dE5fG7" * 4 + tail, "dop": "_v1_" + "a1b2c3d4" * 8 + tail,
        "whsec": "_" + "aB3dE5fG7" * 4 + tail, "shpat": "_" + "a1b2c3d4" * 4 + tail,
        "hvs": "." + "aB3dE5fG7" * 11 + tail, "ya29": ".a0" + "aB3dE5fG7" * 5 + tail,
        "xapp": "-1-A0B1C2D3E-1234567890-" + "a1b2c3d4" * 8 + tail, "glpat": "-" + "aB3dE5fG7hI9" * 2 + tail,
        "SG": "." + "aB3dE5fG7hI9" * 2 + "." + "aB3dE5fG7hI9" * 3 + tail, "hf": "_" + "aBcDeFgHiJkL" * 3 + tail,
    }  # fmt: skip
    begin = beginning or list(made)[index % len(made)]
    return new(place, FORM, begin + made[begin])


def _three(place: str, name: str) -> str:
    """Statements with a plain string, a named one and a form."""
    return (
        f'note_{name} = "{new(place)}"; password_{name} = "{new(place, NAMED)}"; '
        f'link_{name} = "{form(place)}"'
    )


LITERAL, FSTRING, BYTES = "string literal", "f-string", "bytes literal"
HEX = new("token of a known form", FORM, "c0ffee0123456789" * 2 + "c0ffee01")
MULTILINE = new("string in triple quotes")
ARGV = new("command line")
CWD, HOME, USER = "zqcwd-dir-wren", "zqhome-wren", "zquser-wren"

PROSE = (
    f"# the password is {new('comment', NAMED)}, see https://x.y/?a=1&sig={new('comment', NAMED)}"
)
COMMENT = f"# {new('comment')} and {form('comment')} and password = '{new('comment', NAMED)}'"
DOCSTRING = f"{new('docstring')}, {form('docstring')}, api_key: {new('docstring', NAMED)}"

FUNCTION, OPERATOR = new("name of a function or variable"), new("name of a custom operator")
FILE = new("name of a file")
DIRECTORY = new("directory", PLAIN, CWD)
new("home directory, user", PLAIN, HOME)
new("home directory, user", PLAIN, USER)

KNOWN = (
    form("token of a known form", "sk_"), form("token of a known form", "npm"),
    form("token of a known form", "pypi-"), form("token of a known form", "SG"),
    form("token of a known form", "gh"), form("token of a known form", "ghr"),
    form("token of a known form", "dop"), form("token of a known form", "whsec"),
    form("token of a known form", "shpat"), form("token of a known form", "hvs"),
    form("token of a known form", "ya29"), form("token of a known form", "xapp"),
    form("token of a known form", "glpat"), form("token of a known form", "hf"),
    "postgres://bob:" + new("token of a known form", FORM) + "@db/x",
    "Authorization: Bearer " + new("token of a known form", FORM),
    "Authorization: Basic " + new("token of a known form", FORM) + "b3==",
    "Set-Cookie: sessionid=" + new("token of a known form", FORM) + "; path=x",
    "eyJhbGciOiJIUzI1" + "NiJ9." + new("token of a known form", FORM) + "abc." + "aB3dE5fG7hI9jK1",
    "-----BEGIN PRIVATE" + " KEY-----\\n" + new("token of a known form", FORM) + "\\n-----END PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE" + " KEY BLOCK-----\\n" + new("token of a known form", FORM)
    + "\\n-----END PGP PRIVATE KEY BLOCK-----",
    new("token of a known form", FORM, "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "mysql --password " + new("token of a known form", FORM) + " -h db",
    "password = " + new("token of a known form", FORM),
    "machine db login bob password " + new("token of a known form", FORM),
    '{"client": {"secret": "' + new("token of a known form", FORM) + '"}}',
    HEX,
    new("token of a known form", FORM, "q7Zx0Cv5Bn3M" + "kJ8h2Gf6Dd9L"),
)  # fmt: skip
"""Texts with secrets that say what they are."""

ESCAPED = new("string literal with escapes")
FORMATTED = new("f-string", NAMED), new("f-string", NAMED)
GLUED = new("concatenated literals", NAMED)
LISTED = new("attribute", NAMED)
ASSERTED = new("message of an assertion"), new("message of an assertion", NAMED)
OWN = (
    new("string for a function of the program's own"),
    new("string for a function of the program's own", NAMED),
)
PIECES = new("concatenated literals"), new("concatenated literals", NAMED)
THREAD = new("name of a thread")
INTS = number("number in a guard"), number("number in a guard", NAMED)
FLOAT = new("number in a guard", PLAIN, "9182.73642")
GRAPH_INT = number("number in a graph and its code")
TENSOR = new("values of tensors in messages", PLAIN, "7183.2646")
ENVIRONMENT = {
    "TORCH_ZQ_NOTE": new("environment variable of torch"),
    "TORCH_ZQ_TOKEN": new("environment variable of torch with a telling name"),
    "ZQ_OTHER": new("other environment variable"),
    "ZQ_API_TOKEN": new("other environment variable, in a message", NAMED),
    # Where a long message is cut off.
    "ZQ_LONG_TOKEN": new("other environment variable, in a message", NAMED) + "qab81kf7Qp2xx9",
}
TOLD = {
    "ZQ_PASSWORD": "Plover-4711-" + new("other environment variable, in a message", NAMED),
    "ZQ_SECRET": "<" + new("other environment variable, in a message", NAMED),
    "ZQ_AUTH": "/" + new("other environment variable, in a message", NAMED) + "+aa",
    "ZQ-API-KEY": "~" + new("other environment variable, in a message", NAMED),
    "ZQ_PIN_TOKEN": number("other environment variable, in a message", NAMED),
}
"""Variables whose values look like a tag, a path or a size, or are changed in a signature."""
ENVIRONMENT |= TOLD
OPTIONS = new("option of a backend"), new("option of a backend", NAMED)
STREAMS = tuple(new("content of a file or of a stream") for _ in range(9))
ARRAYS = tuple(new("values of tensors and arrays") for _ in range(6))
ARGV_TOKEN = new("option of the command line with a telling name")
ARGV_KEY = new("option of the command line with a telling name")
ARGV_JSON = new("command line", NAMED)
ARGUMENTS = (
    "--name", ARGV, "--hub-token", ARGV_TOKEN, f"--api-key={ARGV_KEY}",
    f'{{"api-key": "{ARGV_JSON}"}}',
)  # fmt: skip
TYPED = new("program text of python -c"), new("program text of python -c", NAMED)


def made(place: str, index: int) -> str:
    """A canary that was made before."""
    return [canary.text for canary in CANARIES if canary.place == place][index]


def _program() -> str:
    return f'''
"""Docstring of the module: {DOCSTRING}"""
import os, sys, threading, torch
GLOBAL = "{new("global variable")}"; password_global = "{new("global variable", NAMED)}"
KEYS = {{"{new("dictionary key")}": 1, "{form("dictionary key")}": 2, "k": "{new("dictionary value")}",
        "": "{new("dictionary value")}", "api_key": "{new("dictionary value", NAMED)}"}}

class Model(torch.nn.Module):
    """{DOCSTRING}"""
    label = "{new("attribute")}"
    def __init__(self):
        super().__init__()
        self.note = "{new("attribute")}"
        self.auth_header = "{new("attribute", NAMED)}"
        self.link = "{form("attribute")}"
        self.count, self.ratio = {INTS[0]}, {FLOAT}
        self.secret_number = {INTS[1]}
        self.secrets = [["{LISTED}"]]
    def forward(self, x):
        """{DOCSTRING}"""
        {COMMENT}
        {PROSE}
        if self.secrets[0][0] == "no":
            x = x + 5
        if self.note == "no" or self.label == "no" or self.auth_header == "no" or self.link == "no":
            x = x + 1
        if self.count == {INTS[0]} and self.secret_number == {INTS[1]} and self.ratio == {FLOAT}:
            x = x + 2
        if KEYS["k"] == "no" or KEYS[""] == "no" or KEYS["api_key"] == "no" or GLOBAL == "no" or password_global == "no":
            x = x + 3
        if list(KEYS)[0] == "no" or KEYS["{made("dictionary key", 0)}"] == 5:
            x = x + 4
        {_three(LITERAL, "s")}
        text = f"{new(FSTRING)} {{x.shape}}"; password = f"{new(FSTRING, NAMED)} {{x.shape}}"
        data = b"{new(BYTES)}"; api_token = b"{new(BYTES, NAMED)}"
        quoted = "a\\"b' {ESCAPED} \\x41"
        triple = """one
        {MULTILINE} "two" 'three'"""
        joined = "{PIECES[0][:5]}" "{PIECES[0][5:]}"; secret = "{PIECES[1][:5]}" "{PIECES[1][5:]}"
        api_secret = ("{GLUED[:6]}"
            "{GLUED[6:]}")
        passwd = f"{FORMATTED[0]} {{x.shape}} {FORMATTED[1]}"
        return torch.sin(x) * {GRAPH_INT}

def attempt(f, *args, **options):
    torch._dynamo.reset()
    try:
        torch.compile(f, **options)(*args)
    except Exception as error:
        print(type(error).__name__)

x = torch.ones(4)
attempt(Model(), x)

def make(word, api_key):
    def {FUNCTION}(x, d="{new("default argument")}", token="{new("default argument", NAMED)}"):
        if word == "no" or api_key == "no" or d == "no" or token == "no":
            return x
        return x.cos()
    return {FUNCTION}
f = make("{new("closure")}", "{new("closure", NAMED)}")
attempt(f, x, backend="eager")

KNOWN = {KNOWN!r}
def refuse(gm, inputs):
    try:
        raise KeyError("{new("chained exception")}", "{form("chained exception")}", {number("chained exception")})
    except KeyError as error:
        made = ValueError({{"k": "{new("exception, its arguments")}", "password": "{new("exception, its arguments", NAMED)}"}}, {number("exception, its arguments")})
        raise made from error  # {new("source line in a traceback")} {form("source line in a traceback")}
attempt(f, x, backend=refuse)

def say(gm, inputs):
    raise ValueError("it says {new("message of an exception")} and '{new("message of an exception")}' {number("message of an exception")} and "
        + "invalid token {new("message of an exception", NAMED)} and PIN={new("message of an exception", NAMED, "918299")} "
        + "token={new("message of an exception", NAMED)} {form("message of an exception")} for /data/{USER}/x " + os.environ["ZQ_API_TOKEN"] + str(torch.full((2,), {" + 0.".join(str(TENSOR).split("."))})))
attempt(f, x, backend=say)

def log_in(gm, inputs):
    raise ValueError("login of bob with " + value + " refused")
for value in [os.environ[name] for name in {list(TOLD)!r}]:
    attempt(f, x, backend=log_in)
value = "word " * 54 + os.environ["ZQ_LONG_TOKEN"]
attempt(f, x, backend=log_in)
def tag(gm, inputs):
    raise ValueError("<Customer {new("message of an exception")} owes 500>")
attempt(f, x, backend=tag)

def tell(gm, inputs):
    raise ValueError("\\n".join(map(repr, KNOWN)) + "\\n".join(KNOWN[:-4]))
attempt(f, x, backend=tell)

def breaks(x, settings):
    y = settings["value"]
    torch._dynamo.graph_break(msg="{new("message of a graph break")}")
    return undefined(x)
attempt(breaks, x, {{"value": "{new("argument of a frame")}", "password": "{new("argument of a frame", NAMED)}"}}, backend="eager", fullgraph=True)

off = torch._dynamo.disable(lambda x: x + 1, reason="because {new("reason not to compile")} said so")
def sayings(x):
    torch._dynamo.graph_break(msg="<the word is {new("message of a graph break")}>")
    return off(x)
attempt(sayings, x, backend="eager")
import logging
logger = logging.getLogger("{new("name of a logger")} of the tenant")
attempt(lambda x: logger.warning("x") or x, x, backend="eager", fullgraph=True)
def annotated(x):
    with torch.fx.traceback.annotate({{"{new("annotation of a node")} key": "{new("annotation of a node")}"}}):
        return x.sin()
attempt(annotated, x, backend="aot_eager")

import array, codecs, gzip, io, tempfile, numpy
with open("content.txt", "w") as file:
    file.write("".join({[word[::-1] for word in STREAMS]!r})[::-1])
with gzip.open("content.gz", "wb") as file:
    file.write("{STREAMS[3][::-1]}"[::-1].encode())
class Note(io.StringIO):
    pass
named = tempfile.NamedTemporaryFile("w+")
named.write("{STREAMS[4][::-1]}"[::-1])
named.flush()
forward = lambda word: "".join(reversed(word))
streams = [
    open("content.txt"), open("content.txt", "rb"), io.StringIO(forward("{STREAMS[0][::-1]}")),
    io.BytesIO(forward("{STREAMS[1][::-1]}").encode()), Note(forward("{STREAMS[2][::-1]}")), gzip.open("content.gz"), named,
    io.TextIOWrapper(io.BytesIO(forward("{STREAMS[5][::-1]}").encode())), codecs.open("content.txt", "r", "utf-8"),
    io.BufferedReader(io.BytesIO(forward("{STREAMS[6][::-1]}").encode())), open("content.txt", "r+b", buffering=0),
]
streams[-2].peek()
values = [list(forward(word).encode()) for word in {[word[::-1] for word in ARRAYS]!r}]
tensors = [
    torch.tensor(values[0], dtype=torch.uint8), torch.nn.Buffer(torch.tensor(values[1], dtype=torch.uint8)),
    numpy.array(values[2], dtype=numpy.uint8), torch.tensor(values[3], dtype=torch.uint8).to_sparse(),
    torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(values[4], dtype=torch.uint8), requires_grad=False)]),
    numpy.array([forward({ARRAYS[5][::-1]!r})]),
]
for one in streams + tensors:
    attempt(breaks, x, {{"value": one}}, backend="eager", fullgraph=True)

@torch.library.custom_op("zqspace::{OPERATOR}", mutates_args=())
def operator(x: torch.Tensor, name: str) -> torch.Tensor:
    return x.clone()
@operator.register_fake
def _(x, name):
    return torch.empty_like(x)
def check(x):
    torch._assert(x.sum() > 0, "{ASSERTED[0]} is not so and password={ASSERTED[1]}")
    return x.sin()
attempt(check, x, backend="aot_eager")

@torch._dynamo.allow_in_graph
def opaque(x, name, password):
    return x.sin()
attempt(lambda x: opaque(x, "{OWN[0]}", password="{OWN[1]}"), x, backend="eager")
attempt(lambda x: operator(x, "{new("string for a custom operator")}"), x, backend="aot_eager")

def backend(gm, inputs, *, options=None):
    return gm.forward
attempt(f, x, backend=backend, options={{"note": "{OPTIONS[0]}", "api_key": "{OPTIONS[1]}"}})

def in_thread():
    attempt(torch.nn.Tanh(), x, backend="eager")
thread = threading.Thread(target=in_thread, name="{THREAD[:4]}" + "{THREAD[4:]}")
thread.start(); thread.join()

with torch._inductor.config.patch({{"aot_inductor.output_path": "{new("setting of torch")}"}}):
    attempt(torch.nn.Sigmoid(), x, backend="aot_eager")
with torch._inductor.config.patch({{"cpp.cxx": ("{new("setting of torch")}",)}}):
    attempt(torch.nn.Sigmoid(), x)
'''


PROGRAM = _program()

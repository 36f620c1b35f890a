"""Show: a program full of secrets is recorded, and no byte of the store has one of them."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recorder import programs
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings
from torchreel.replay import replay
from torchreel.store import Store, queries
from torchreel.store.blobs.packing import LastPack, read

# Put together here, so that this file holds none that a scanner would report.
SECRETS = {
    "MY_SERVICE_TOKEN": "plain-word-in-the-environment",
    "DB_PASSWORD": 'quo"ted pass\\word',
    "MY_DATABASE": "postgres://bob:" + "behind-the-colon@db/x",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/" + "K7MDENG/bPxRfiCYEXAMPLEKEY",
}
ON_THE_LINE = "given-on-the-command-line"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "q9W8e7R6t5Y4u3I2o1P0a9S8d7F6g5H4j3K2"
HUGGING = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345678"
OPEN = "sk-" + "proj-aB3dE5fG7hI9jK1lM3nO5pQ7"
RANDOM = "kJ8h2Gf6" + "Dd9Lq1Zx0Cv7Bn5M"
PASSWORD = "correct-horse-battery"
VALUES = ("1234.5678", "8765.4321")
"""Of tensors."""
HIDDEN = {
    name: f"zq-{name}-{number}"
    for number, name in enumerate(
        ("nested", "pair", "attribute", "deep", "module", "global", "bytes", "argument", "option",
         "break", "closure", "cookie", "tuple", "state", "field", "default", "constant", "quoted",
         "docstring", "webhook", "header", "helper", "late", "read", "typed"), 10,
    )
}  # fmt: skip
"""Where a program has secrets, and those of this one."""

PROGRAM = f'''
"""Docstring of the module: password = '{PASSWORD}'."""
import torch, os, sys

KEY = "{RANDOM}"
model_path = os.path.join(os.path.expanduser("~"), "private-project", "model.py")

class Secretive(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((32,), {VALUES[0]}))
        self.register_buffer("table", torch.full((32,), {VALUES[1]}))

    def forward(self, x):
        """Uses {AWS}; authorization: Bearer {GITHUB}"""
        config = {{"api_key": "{OPEN}", "label": "{HUGGING}", "password": "{PASSWORD}"}}
        if config["label"] == "{RANDOM}":
            x = x + 1
        return (x * self.weight + self.table).sin()

def refuse(gm, inputs):
    raise ValueError("cannot log in: token='{RANDOM}' password={PASSWORD} at " + model_path
        + " for {GITHUB} " + os.environ["MY_SERVICE_TOKEN"] + os.environ["DB_PASSWORD"])

model = Secretive()
torch.compile(model, backend="aot_eager")(torch.full((32,), {VALUES[0]}))
torch._dynamo.reset()
torch.compile(model, backend=refuse)(torch.full((32,), {VALUES[0]}))
'''


HIDING = f'''
import os, subprocess, sys, torch
from typing import NamedTuple

URL = os.environ["MY_DATABASE"]
CONFIG = {{
    "db": {{"password": "{HIDDEN["nested"]}", "url": URL}},
    "more": [("client_secret", "{HIDDEN["pair"]}")],
    "hook": "https://hooks.slack.com/services/T0/B0/{HIDDEN["webhook"]}",
}}
passphrase = "{HIDDEN["global"]}"
api_secret = b"{HIDDEN["bytes"]}"

class Settings:
    """password: {HIDDEN["docstring"]}"""
    def __init__(self, **settings):
        self.__dict__.update(settings)

class Odd:
    def __init__(self):
        self.credentials = ("user", "{HIDDEN["tuple"]}")
    def __getstate__(self):
        return dict(self.__dict__, bearer="{HIDDEN["state"]}")

class Pair(NamedTuple):
    user: str
    password: str

class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.api_token = "{HIDDEN["module"]}"
        self.cfg = CONFIG
        self.hf = Settings(use_auth_token="{HIDDEN["attribute"]}",
                           nested=Settings(secret_key="{HIDDEN["deep"]}"))
    def forward(self, x, headers):
        if self.cfg["db"]["password"] == "no" or self.api_token == "no" or passphrase == "no":
            x = x + 1
        if self.hf.use_auth_token == "no" or self.hf.nested.secret_key == "no":
            x = x + 2
        if api_secret == b"no" or headers["X-Api-Key"] == "no" or os.environ["MY_DATABASE"] == "no":
            x = x + 3
        return x.cos()

def login(gm, inputs):
    raise ValueError(f"for {{URL}} with {{CONFIG}}, {{passphrase}} and {{api_secret}}")

def attempt(f, *args, **options):
    torch._dynamo.reset()
    try:
        torch.compile(f, **options)(*args)
    except torch._dynamo.exc.TorchDynamoException as error:
        print(type(error))

x = torch.ones(2)
for backend in ("eager", login):
    attempt(Nested(), x, {{"X-Api-Key": "{HIDDEN["header"]}"}}, backend=backend)

def breaks(x):
    torch._dynamo.graph_break(msg="password={HIDDEN["break"]}")
    subprocess.run(["true", "--password", "{HIDDEN["option"]}"])
    return x + 1
attempt(breaks, x, backend="eager")

def bad(x, settings, odd, pair, token="{HIDDEN["default"]}"):
    secret = "{HIDDEN["constant"]}" + str(x)
    password = 'it\\'s {HIDDEN["quoted"]}'
    return undefined(x, settings.password, odd.credentials, pair, token, secret, password)
attempt(bad, x, Settings(password="{HIDDEN["argument"]}"), Odd(), Pair("me", "{HIDDEN["field"]}"),
        backend="eager", fullgraph=True)

def make():
    api_key = "{HIDDEN["closure"]}"
    session_cookie = "{HIDDEN["cookie"]}"
    def f(x):
        if api_key == "no" or session_cookie == "no":
            x = x + 1
        return undefined(x, api_key)
    return f
attempt(make(), x, backend="eager", fullgraph=True)

# What only another file knows, what is there only now, and what a tensor holds.
from helper import log_in
with open(os.path.join(os.path.dirname(__file__), "settings.env")) as settings:
    os.environ["LATE_TOKEN"], read = settings.read().split()

def late(gm, inputs):
    api_key = read
    try:
        log_in()
    except ValueError as error:
        values = torch.full((2, 2), {VALUES[0]})
        raise KeyError(f"{{api_key}} {{os.environ['LATE_TOKEN']}} {{values}}") from error
attempt(torch.nn.Sigmoid(), x, backend=late)

# What was typed into a prompt, and is in no file.
typed = {{}}
exec(compile("""
def log_in(gm, inputs):
    api_token = "-".join(["zq", "typed", str({HIDDEN["typed"][-2:]})])
    raise ValueError(f"nobody has {{api_token}}")
""", "<stdin>", "exec"), typed)
attempt(torch.nn.Tanh(), x, backend=typed["log_in"])
'''

HELPER = f"""
MASTER_PASSWORD = "{HIDDEN["helper"]}"

def log_in():
    raise ValueError("nobody has " + MASTER_PASSWORD)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes") / "alice-the-user"


@pytest.fixture(scope="module", params=["full", "flight"])
def recorded(
    request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store of the program above."""
    store = tmp_path_factory.mktemp("stores") / f"{request.param}.db"
    assert run_in(home, PROGRAM, store, request.param) == 1
    return store


@pytest.fixture(scope="module", params=["full", "flight"])
def hidden(
    request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store of the program that hides them better; it keeps every frame."""
    store = tmp_path_factory.mktemp("stores") / f"{request.param}.db"
    assert run_in(home, HIDING, store, request.param) == 0
    return store


def run_in(home: Path, program: str, store: Path, mode: str) -> int:
    """Record a program that is in the home of somebody, with secrets around it."""
    project = home / "private-project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "train.py").write_text(program)
    (project / "helper.py").write_text(HELPER)
    (project / "settings.env").write_text(f"{HIDDEN['late']} {HIDDEN['read']}")
    command = [sys.executable, str(project / "train.py"), "--hub-token", ON_THE_LINE]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, **programs.ENVIRONMENT}.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(home))
        patch.setenv("USER", "alice-the-user")
        patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        return run_recorded(command, store, mode=mode, settings=Settings(frames="all"))


def everything(path: Path) -> Iterator[bytes]:
    """All bytes of a store: the files as they are, every column, every blob unpacked."""
    for file in path.parent.iterdir():
        yield file.read_bytes()
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            yield repr(row).encode()
    for (digest,) in connection.execute("SELECT digest FROM blobs").fetchall():
        yield read(lambda *query: connection.execute(*query).fetchall(), digest, LastPack())
    connection.close()


def test_no_byte_of_the_store_has_a_secret(recorded: Path, home: Path) -> None:
    secrets = [
        *SECRETS.values(), ON_THE_LINE, AWS, GITHUB, HUGGING, OPEN, RANDOM, PASSWORD,
        str(home), home.name,
    ]  # fmt: skip
    spelled = [text for s in secrets for text in (s, repr(s)[1:-1], s.replace('"', '\\"'))]
    seen = 0
    for data in everything(recorded):
        seen += len(data)
        for secret in spelled:
            assert secret.encode() not in data, secret
    assert seen > 20_000, "there is nothing in the store"


def test_no_byte_has_what_is_hidden_in_objects_and_code(hidden: Path) -> None:
    found = {
        secret
        for data in everything(hidden)
        for secret in (*HIDDEN.values(), "behind-the-colon", "1234.567749", "1234.5677,")
        if secret.encode() in data
    }
    assert found == set()
    with Store.open(hidden) as store:
        compiles = queries.compiles(store, 1)
        failed = [row for row in compiles if row.status == "failed"]
        bundles = [queries.frame_bundle(store, row) for row in failed]
        failures = queries.failures(store)
        assert queries.lost(store, 1) == []
    # Not for want of anything to look at: each failing frame is there, without its secrets.
    modules = ["Sigmoid.forward", "Tanh.forward"]
    assert [row.frame_name for row in failed] == ["forward", "bad", "f", *modules]
    told = "KeyError: '<redacted> <redacted> tensor(<redacted>)'"
    assert any(told in failure.message for failure in failures)
    for bundle in bundles[:3]:
        assert bundle is not None
        assert bundle.status == "partial", bundle.reason
        assert "strings were redacted" in bundle.reason
        assert bundle.digest is not None


def test_the_weights_are_not_in_it(recorded: Path) -> None:
    import struct

    written = [struct.pack("<f", float(value)) * 4 for value in VALUES]
    for data in everything(recorded):
        assert not any(value in data for value in written)
        # As text they stand in the source of the program alone.
        lines = [line for line in data.split(b"\n") if VALUES[0].encode() in line]
        assert all(b"full(" in line for line in lines), lines


def test_what_is_left_can_be_read(recorded: Path) -> None:
    with Store.open(recorded) as store:
        (failure,) = queries.failures(store)
        recording = queries.recordings(store)[0]
        compiles = queries.compiles(store, recording.id)
    assert (
        failure.exception_type == "ValueError" or "BackendCompilerFailed" in failure.exception_type
    )
    assert "cannot log in: token='<redacted>' password=<redacted>" in failure.message
    assert isinstance(recording.argv, list)
    assert recording.argv[-3:] == ["~/private-project/train.py", "--hub-token", "<redacted>"]
    assert {row.frame_file for row in compiles} == {"~/private-project/train.py"}
    assert [row.status for row in compiles] == ["ok", "failed"]


@pytest.mark.slow
def test_a_recording_with_redactions_replays(recorded: Path) -> None:
    with Store.open(recorded, write=True) as store:
        good, bad = queries.compiles(store, 1)
        if "full" in recorded.name:
            verdict = replay(store, good, "graph")
            assert (verdict.verdict, verdict.detail) == ("identical", "")
            assert {row.kind for row in verdict.compared} >= {"graph"}
        (checkpoint,) = queries.checkpoints(store, bad)
        assert b"~/private-project" in store.read_blob(checkpoint.digest)


SOURCE = """
import torch

def f(x, options):
    y = x.sin() @ x.cos()
    if options["kind"] == "it's":
        y = y + 1
    return torch.softmax(y, -1)

x = torch.randn(8, 8, requires_grad=True)
torch.compile(f, backend="aot_eager")(x, {"kind": "it's"}).sum().backward()
"""


@pytest.mark.slow
def test_without_any_text_nothing_is_lost_and_it_replays(tmp_path: Path) -> None:
    (tmp_path / "private.py").write_text(SOURCE)
    store = tmp_path / "run.db"
    command = [sys.executable, str(tmp_path / "private.py")]
    assert run_recorded(command, str(store), settings=Settings(redact="all")) == 0
    assert not [
        data for data in everything(store) if b"x.cos()" in data and SOURCE.encode() != data
    ]
    with Store.open(store, write=True) as opened:
        (compile,) = queries.compiles(opened, 1)
        assert queries.lost(opened, 1) == []
        verdict = replay(opened, compile, "graph")
    assert (verdict.verdict, verdict.difference) == ("identical", "")
    assert {row.kind for row in verdict.compared} >= {"graph", "aot_joint_graph"}

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
from torchreel.store.packing import unpack

# Put together here, so that this file holds none that a scanner would report.
SECRETS = {
    "MY_SERVICE_TOKEN": "plain-word-in-the-environment",
    "DB_PASSWORD": 'quo"ted pass\\word',
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes") / "alice-the-user"


@pytest.fixture(scope="module", params=["full", "flight"])
def recorded(
    request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store of the program above."""
    project = home / "private-project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "train.py").write_text(PROGRAM)
    store = tmp_path_factory.mktemp("stores") / f"{request.param}.db"
    command = [sys.executable, str(project / "train.py"), "--hub-token", ON_THE_LINE]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, **programs.ENVIRONMENT}.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(home))
        patch.setenv("USER", "alice-the-user")
        patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        assert run_recorded(command, store, mode=request.param, settings=Settings()) == 1
    return store


def everything(path: Path) -> Iterator[bytes]:
    """All bytes of a store: the files as they are, every column, every blob unpacked."""
    for file in path.parent.iterdir():
        yield file.read_bytes()
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            yield repr(row).encode()
    for row in connection.execute("SELECT digest, codec, size, data FROM blobs"):
        yield unpack(*row)
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


def test_a_recording_with_redactions_replays(recorded: Path) -> None:
    with Store.open(recorded, write=True) as store:
        good, bad = queries.compiles(store, 1)
        if "full" in recorded.name:
            verdict = replay(store, good, "graph")
            assert (verdict.verdict, verdict.detail) == ("identical", "")
            assert {row.kind for row in verdict.compared} >= {"graph"}
        (checkpoint,) = queries.checkpoints(store, bad)
        assert b"~/private-project" in store.read_blob(checkpoint.digest)

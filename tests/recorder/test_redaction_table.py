"""Show: what docs/redaction.md says of each place and level is what a store holds."""

import base64
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.canaries import ways
from benchmarks.canaries.__main__ import rows
from tests.recorder import canaries, programs
from tests.recorder.canaries import CANARIES, FORM, NAMED, Canary
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings
from torchreel.store import Store, queries
from torchreel.store.blobs.packing import LastPack, read

LEVELS = ("none", "default", "all")
STAYS, SECRETS_GO, GOES = "stays", "secrets go", "goes"


def table() -> dict[str, dict[str, str]]:
    """What the documentation says, by place and level."""
    return {place: dict(zip(LEVELS, row, strict=True)) for place, row in rows("place").items()}


def test_each_place_is_in_the_table() -> None:
    assert {canary.place for canary in CANARIES} == set(table())
    assert {cell for row in table().values() for cell in row.values()} == {STAYS, SECRETS_GO, GOES}
    assert len({canary.text for canary in CANARIES}) == len(CANARIES) >= 70


def test_each_way_is_in_the_table() -> None:
    said = rows("way")
    assert set(said) == set(ways.WAYS)
    for way, (mixed, letters, everything) in said.items():
        kinds = {ways.MIXED: mixed, ways.LETTERS: letters}
        kept = tuple(kind for kind, cell in kinds.items() if cell == STAYS)
        assert (kept, everything) == (ways.KEPT.get(way, ()), GOES)


@pytest.fixture(scope="module", params=LEVELS)
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[bytes]]:
    """A level, and all that a store recorded at it holds."""
    folder = tmp_path_factory.mktemp(request.param)
    project = folder / canaries.HOME / canaries.CWD
    project.mkdir(parents=True)
    file = project / f"{canaries.FILE}.py"
    file.write_text(canaries.PROGRAM)
    text = f"""# {canaries.TYPED[0]} password = '{canaries.TYPED[1]}'
import runpy; runpy.run_path({str(file)!r}, run_name="__main__")"""
    command = [sys.executable, "-c", text, *canaries.ARGUMENTS]
    store = folder / "run.db"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**canaries.ENVIRONMENT, **programs.ENVIRONMENT}.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(folder / canaries.HOME))
        patch.setenv("USER", canaries.USER)
        # What is compiled once need not be compiled again for the next level.
        cache = folder.parent / "cache" / canaries.USER
        cache.mkdir(parents=True, exist_ok=True)
        patch.setenv("TMPDIR", str(cache))
        patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        patch.chdir(project)
        settings = Settings(redact=request.param, frames="all")
        assert run_recorded(command, store, settings=settings) == 0
    return request.param, list(everything(store))


def everything(store: Path) -> Iterator[bytes]:
    """Every column and every blob, unpacked."""
    connection = sqlite3.connect(store)
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert connection.execute("SELECT * FROM lost").fetchall() == []
    for (table_name,) in tables:
        for row in connection.execute(f'SELECT * FROM "{table_name}"'):
            yield repr(row).encode()
    for (digest,) in connection.execute("SELECT digest FROM blobs").fetchall():
        yield read(lambda *query: connection.execute(*query).fetchall(), digest, LastPack())
    connection.close()


def spelled(text: str) -> list[bytes]:
    """A text as it is, in hex and in base64 at whatever offset."""
    data = text.encode()
    found = [data, data.hex().encode()]
    for offset in range(3):
        whole = base64.b64encode(b"x" * offset + data)
        found.append(whole[4 if offset else 0 : len(whole) - 4])
    return found


def is_kept(canary: Canary, said: str) -> bool:
    """Whether the table says that a canary is in a store."""
    return said == STAYS or (said == SECRETS_GO and canary.kind not in (NAMED, FORM))


@pytest.mark.slow
def test_the_store_holds_what_the_table_says(recorded: tuple[str, list[bytes]]) -> None:
    level, store = recorded
    said = table()
    wrong = []
    for canary in CANARIES:
        # Of one that stays, the text itself is to be found.
        looked_for = spelled(canary.text)
        found = any(text in data for data in store for text in looked_for)
        if found != is_kept(canary, said[canary.place][level]):
            wrong.append((canary, "found" if found else "not found"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.slow
def test_a_frame_that_begins_anew_leaves_no_source_either(tmp_path: Path) -> None:
    """A graph break restarts the frame, whose row is then completed by another path."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "def f(x):\n"
        "    # a word of the customer\n"
        "    x = x + 1\n"
        "    torch._dynamo.graph_break()\n"
        "    return x.sin()\n"
        "torch.compile(f, backend='eager')(torch.ones(3))\n"
    )
    for level, has_source in (("all", False), ("default", True)):
        path = tmp_path / f"{level}.db"
        command = ["record", "--redact", level, "-o", str(path), "--", sys.executable, str(program)]
        subprocess.run([sys.executable, "-m", "torchreel.cli", *command], check=True)
        with Store.open(path) as store:
            rows = queries.compiles(store, 1)
        assert any(row.status == "restarted" for row in rows)
        assert any(row.frame_source for row in rows) == has_source

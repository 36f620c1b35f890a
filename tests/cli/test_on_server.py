"""A real failure, pushed to a server and worked on there: replayed, reduced, grouped, shared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_end_to_end import PROGRAM
from tests.server import Server
from torchreel.store import Store, queries
from torchreel.store.servers.roles import READ, grant


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a failing program, with its frames."""
    folder = tmp_path_factory.mktemp("recorded")
    program, path = folder / "fails.py", folder / "run.db"
    program.write_text(PROGRAM)
    words = ["record", "--frames", "all", "-o", path, "--", sys.executable, program]
    subprocess.run([sys.executable, "-m", "torchreel.cli", *map(str, words)], capture_output=True)
    return path


@pytest.fixture
def pushed(run: Run, recorded: Path, url: str) -> str:
    """The URL of a store that it was pushed to."""
    assert run("push", recorded, "--to", url).status == 0
    return url


@pytest.mark.slow
def test_the_owner_works_in_the_store_itself(
    run: Run, pushed: str, recorded: Path, tmp_path: Path
) -> None:
    replayed = run("replay", f"{pushed}#1/0/0", "--json")
    assert replayed.status == 0, replayed.err
    assert json.loads(replayed.out)["verdict"] == "identical"
    here = Path(shutil.copy(recorded, tmp_path / "run.db"))
    frames = [
        run("replay", f"{store}#1/0/0", "--entry", "frame", "--trust") for store in (pushed, here)
    ]
    assert frames[0].status == frames[1].status
    assert frames[0].out.replace(pushed, "") == frames[1].out.replace(str(here), "")
    reduced = run("minify", pushed, "-o", tmp_path / "repro", "--checks", 1, "--jobs", 1)
    assert reduced.status == 0, reduced.err
    assert "torch.scatter(" in (tmp_path / "repro" / "repro.py").read_text()
    grouped = run("triage", pushed, "--json")
    assert grouped.status == 0
    (group,) = json.loads(grouped.out)["groups"]
    assert (group["is_reduced"], group["smallest"]) == (True, f"{pushed}#1/0/0")
    exported = run("export", f"{pushed}#1/0/0", "-o", tmp_path / "again", "--checks", 1)
    assert exported.status == 0, exported.err
    shared = run("share", f"{pushed}#1/0/0", "-o", tmp_path / "shared")
    assert shared.status == 0, shared.err
    with Store.open(pushed) as store:
        assert [row.kind for row in queries.recordings(store)][:2] == ["program", "replay"]


@pytest.mark.slow
def test_a_reader_works_in_copies(
    run: Run, pushed: str, server: Server, tmp_path: Path, recorded: Path
) -> None:
    with Store.open(pushed, write=True) as store, store.writer() as w:
        grant(w.connection)
    server.execute(
        f"DO $$ BEGIN CREATE ROLE a_reader LOGIN IN ROLE {READ}; "
        "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    url = pushed.replace("postgres@", "a_reader@")
    replayed = run("replay", f"{url}#1/0/0")
    assert replayed.status == 0, replayed.err
    place = tmp_path / "repro"
    reduced = run("minify", url, "-o", place, "--checks", 1, "--jobs", 1)
    assert reduced.status == 0, reduced.err
    assert "verdicts go to a copy" in reduced.err
    with Store.open(pushed) as store, Store.open(place / "store.db") as copy:
        assert len(queries.recordings(store)) == 1
        assert queries.reductions(store) == []
        assert len(queries.reductions(copy)) == 1
    sent = run("push", place / "store.db", "--to", pushed)
    assert "rows added to recordings that were there" in sent.err
    with Store.open(pushed) as store:
        assert len(queries.recordings(store)) == 1
        assert len(queries.reductions(store)) == 1


@pytest.mark.slow
def test_recording_into_a_server_shows_and_keeps_no_password(
    run: Run, server: Server, url: str, tmp_path: Path
) -> None:
    """It is slower than a file, and allowed."""
    secret = server.locked_url(url.rpartition("/")[2])
    program = tmp_path / "works.py"
    program.write_text("import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))\n")
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", secret, "--", sys.executable]
    ended = subprocess.run([*command, str(program)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "locked@" in ended.stderr
    found = run("query", url, "SELECT count(*) FROM compiles WHERE status = 'ok'")
    assert "1" in found.out.split()
    tables = ("recordings", "environment", "lost", "events", "compiles", "config_entries")
    kept = [run("query", url, f"SELECT * FROM main.{name}").out for name in tables]
    for text in (ended.stdout, ended.stderr, *kept):
        assert "fish" not in text

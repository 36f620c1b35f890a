"""`prepare` and `push`, as they are typed: into a server, and into a file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing
from tests.server import PASSWORD, Server
from torchreel.store import Store, queries


def test_a_store_is_prepared_pushed_to_and_looked_at(run: Run, empty: Path, server: Server) -> None:
    url = server.new_database()
    assert run("ls", url).status == 3
    assert "torchreel prepare" in run("push", failing(empty), "--to", url).err
    assert run("prepare", url).status == 0
    assert run("prepare", url).status == 0
    first = run("push", empty, "--to", url)
    assert (first.status, first.out) == (0, f"{empty}#1 -> {url}#1\n")
    assert f"next: torchreel triage {url}" in first.err
    again = run("push", empty, "--to", url)
    assert (again.status, again.out) == (0, "")
    assert "0 recordings sent, 1 there already" in again.err
    assert "KeyError" in run("triage", url).out
    assert "0/1" in run("ls", f"{url}#1").out
    assert "relu" in run("show", f"{url}#1/0/1", "--graph", "dynamo").out


def test_many_stores_are_joined_in_a_file(run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / f"rank-{rank}.db" for rank in range(2)]
    for rank, path in enumerate(paths):
        Store.open(path, create=True).close()
        with Store.open(failing(path), write=True) as store, store.writer() as w:
            w.update("recordings", 1, rank=rank)
    joined = tmp_path / "joined.db"
    found = run("push", *paths, "--to", joined, "--json")
    assert [json.loads(line)["to"] for line in found.out.splitlines()] == [
        f"{joined}#1", f"{joined}#2",
    ]  # fmt: skip
    with Store.open(joined) as store:
        assert [row.rank for row in queries.recordings(store)] == [0, 1]


def test_what_can_t_be_sent_is_said_and_the_rest_is_sent(
    run: Run, empty: Path, tmp_path: Path
) -> None:
    none = tmp_path / "none.db"
    none.write_text("nothing")
    found = run("push", none, failing(empty), tmp_path / "missing.db", "--to", tmp_path / "to.db")
    assert found.status == 3
    assert "not sent" in found.err
    assert "none.db" in found.err
    assert "missing.db" in found.err
    assert "to.db#1" in found.out


def test_where_to_has_to_be_said_and_be_another_store(run: Run, empty: Path) -> None:
    assert run("push", empty).status == 2
    assert run("push", empty, "--to", empty).status == 2
    assert run("push", empty, "--to", "mysql://me@host/db").status == 3


@pytest.mark.slow
def test_no_password_is_printed_or_stored(run: Run, empty: Path, server: Server, url: str) -> None:
    secret = server.locked_url(url.rpartition("/")[2])
    printed = [
        run("push", failing(empty), "--to", secret), run("push", empty, "--to", secret, "--json"),
        run("ls", secret), run("ls", secret, "--json"), run("show", f"{secret}#1/0/1"),
        run("why", f"{secret}#1/0/1"), run("why", secret), run("triage", secret, "--json"),
        run("doctor", secret),
        run("query", secret, "SELECT * FROM failures"), run("audit", secret),
        run("diff", f"{secret}#1/0/0", f"{secret}#1/0/1"), run("show", f"{secret}#9/9/9"),
        run("report", secret, "-o", empty.with_name("report.html")), run("prepare", secret),
        run("push", empty, "--to", secret.replace("fish", "fowl")),
    ]  # fmt: skip
    text = "".join(found.out + found.err for found in printed)
    text += empty.with_name("report.html").read_text()
    assert text.count("locked@") > 10
    for form in (PASSWORD, "fish", "fowl", "%2F"):
        assert form not in text
    for table in ("recordings", "environment", "lost", "failures"):
        assert "fish" not in run("query", url, f"SELECT * FROM main.{table}").out


def test_watching_sends_what_comes_and_what_is_left_at_the_end(tmp_path: Path, url: str) -> None:
    path = tmp_path / "run.db"
    command = [sys.executable, "-m", "torchreel.cli", "push", str(path), "--to", url]
    process = subprocess.Popen(
        [*command, "--watch", "--every", "0.2"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        time.sleep(1)  # there is no store yet
        Store.open(path, create=True).close()
        failing(path)
        assert process.stdout.readline() == f"{path}#1 -> {url}#1\n"
        failing(path, frame_name="second")
        with Store.open(path, write=True) as store, store.writer() as w:
            w.update("recordings", 2, run="another")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert f"{path}#2 -> {url}#" in out
        assert process.returncode == 0
    finally:
        process.kill()


def test_watching_outlives_its_server(tmp_path: Path, url: str, server: Server) -> None:
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    command = [sys.executable, "-m", "torchreel.cli", "push", str(path), "--to", url]
    server.stop()
    try:
        process = subprocess.Popen(
            [*command, "--watch", "--every", "0.2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert "It is tried again" in process.stderr.readline()
    finally:
        server.start()
    failing(path)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert out == f"{path}#1 -> {url}#1\n"
    assert process.returncode == 0


def test_roles_are_made_or_printed(run: Run, server: Server, url: str) -> None:
    printed = run("prepare", url, "--sql")
    assert printed.out.count("CREATE ROLE") == 3
    made = run("prepare", url, "--roles")
    assert made.status == 0
    assert made.out.splitlines()[0].startswith("torchreel_append may push")
    server.execute(printed.out, database=url.rpartition("/")[2])  # which is what was executed

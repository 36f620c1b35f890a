"""A store that holds programs, of a stranger's making: no verb runs one before it is trusted.

A reduced Dynamo failure is kept as a program.  Here each such program of a real store touches a
file as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select, update

from torchreel.store import Store, schema

PROGRAM = """
import torch

def f(x):
    y = x + 1
    print("break")
    return y.sin()

torch.compile(f, fullgraph=True, backend="eager")(torch.ones(3))
"""
VERBS: tuple[str, ...] = (
    "ls {}", "show {}", "show {} --events", "show {} --code", "show {} --traceback", "shapes {}",
    "why {} recompile", "why-graph-break {}", "guards {}", "query {} SELECT*FROM[failures]",
    "diff {} {}", "diff --ranks {}", "triage {}", "report {} -o report.html", "audit {}",
    "share {} -o bundle.db", "export {} --format torch-trace -o trace",
    "export {} --format perfetto -o trace.json", "replay {}", "replay {} --entry frame",
    "replay {} --sequence", "minify {} -o repro", "minify {} --accuracy -o repro", "bisect {}",
    "analyze {}", "export {} -o repro", "recheck {} --python {python} --runs 1",
    "releases {} --python {python} --runs 1", "doctor {}", "minify {} --group ALL -o groups",
    "triage {} --accuracy", "prune {} --max-age 90d --dry-run",
)  # fmt: skip


def command(*words: str, cwd: Path) -> str:
    """Run a command line; what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "torchreel.cli", *words],
        capture_output=True, text=True, cwd=cwd, timeout=300,
    )  # fmt: skip
    return done.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose kept programs touch the file `owned` beside it."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "program.py").write_text(PROGRAM)
    command("record", "-o", "run.db", "--", sys.executable, "program.py", cwd=folder)
    command("minify", "run.db", "--trust", "--limit-runs", "6", "-o", "first", cwd=folder)
    hostile = f"import pathlib\npathlib.Path({str(folder / 'owned')!r}).touch()\n"
    with Store.open(folder / "run.db", write=True) as opened, opened.writer() as writer:
        cases = schema.cases
        for row in opened.rows(select(cases.c.digest, cases.c.document)):
            case = json.loads(opened.read_blob(row.document))
            assert case["kind"] == "source"
            document = writer.blob(json.dumps({**case, "text": hostile + case["text"]}).encode())
            changed = update(cases).where(cases.c.digest == row.digest)
            writer.connection.execute(changed.values(document=document))
    return folder / "run.db"


@pytest.mark.slow
def test_no_verb_runs_a_stored_program(store: Path, tmp_path: Path) -> None:
    owned = store.with_name("owned")
    for verb in VERBS:
        words = [word.format(store, python=sys.executable) for word in verb.split()]
        said = command(*words, cwd=tmp_path)
        assert "Traceback" not in said, f"{verb}: {said}"
        assert not owned.exists(), verb


@pytest.mark.slow
def test_a_trusted_program_is_run(store: Path, tmp_path: Path) -> None:
    """By the first verb that needs it: what the test above looks for would be seen.

    Each program stands under the digest of another: the search once went from one to the other.
    """
    owned = store.with_name("owned")
    command("minify", str(store), "--trust", "--limit-runs", "3", "-o", "repro", cwd=tmp_path)
    assert owned.exists()
    owned.unlink()

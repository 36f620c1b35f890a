"""A store that holds programs, of a stranger's making: no verb runs one before it is trusted.

A reduced Dynamo failure is kept as a program.  Here each such program of a real store touches a
file as well.  The source of a Triton kernel is a program too: here one is called in a body of the
graph that no node names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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
COMPILED = """
import torch

torch.compile(lambda x: x.relu() + 1)(torch.ones(3))
"""
KERNEL: dict[str, Any] = {
    "number": 0, "constants_number": 0, "name": "k", "names": {}, "constants": {}, "key": [],
    "configurations": [], "source": "def k(x):\n    pass\n\nimport pathlib\npathlib.owned()",
}  # fmt: skip
CHECK = """
import pathlib, subprocess, sys

text = pathlib.Path(sys.argv[1]).read_text()
with open("seen", "a") as seen:
    seen.write(text)
sys.exit(subprocess.run([sys.executable, sys.argv[1]], capture_output=True).returncode)
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
    return run(*words, cwd=cwd).stderr


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchreel.cli", *words],
        capture_output=True, text=True, cwd=cwd, timeout=300,
    )  # fmt: skip


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


def hide_kernel(store: Path) -> int:
    """Put a body that calls a kernel of the store into each graph; how many."""
    with Store.open(store, write=True) as opened, opened.writer() as writer:
        checkpoints = schema.checkpoints
        graphs = select(checkpoints.c.id, checkpoints.c.digest).where(
            checkpoints.c.entry == "graph"
        )
        rows = list(opened.rows(graphs))
        for row in rows:
            document = json.loads(opened.read_blob(row.digest))
            first, call, *_, output = document["graph"]["nodes"]
            given = {"kernel_idx": 0, "constant_args_idx": 0}
            call = {**call, "op": "call_function", "name": "k", "args": [], "kwargs": given}
            call["target"] = "hop:triton_kernel_wrapper_mutation"
            output = {**output, "args": [{"t": [{"n": first["name"]}]}]}
            body = {**document["graph"], "nodes": [first, call, output]}
            document["graph"]["modules"] = {"unnamed": body}
            document["extra"] = {**document.get("extra", {}), "triton_kernels": [KERNEL]}
            digest = writer.blob(json.dumps(document).encode())
            changed = update(checkpoints).where(checkpoints.c.id == row.id)
            writer.connection.execute(changed.values(digest=digest))
        return len(rows)


@pytest.mark.slow
def test_a_command_gets_no_kernel_of_a_stranger(tmp_path: Path) -> None:
    """Nor does any verb write one: FX leaves the body out, and the text of a script did not."""
    (tmp_path / "program.py").write_text(COMPILED)
    (tmp_path / "check.py").write_text(CHECK)
    command("record", "-o", "run.db", "--", sys.executable, "program.py", cwd=tmp_path)
    check = ("--", sys.executable, str(tmp_path / "check.py"))
    seen = tmp_path / "seen"
    shutil.copy(tmp_path / "run.db", tmp_path / "good.db")
    run("minify", "good.db#1", "--limit-runs", "3", *check, cwd=tmp_path)
    assert "torch.compile(fn" in seen.read_text(), "the command gets scripts"
    seen.unlink()

    assert hide_kernel(tmp_path / "run.db") == 1
    for verb in ("minify -o repro", "export -o repro", "replay", "bisect", "minify --accuracy"):
        done = run(*verb.split(), "run.db#1", *(check if verb == "minify -o repro" else ()),
                   cwd=tmp_path)  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 3, f"{verb}: {said}"
        assert "--trust" in said, f"{verb}: {said}"
    assert not seen.exists()
    written = [file.read_bytes() for file in (tmp_path / "repro").rglob("*") if file.is_file()]
    assert not any(b"pathlib.owned" in data for data in written)

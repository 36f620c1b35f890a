"""No text of a store reaches a terminal or a file as anything but text that can be seen.

A real failure is recorded and given a history; then every text column of every table, and every
string of every document, gets a hostile text. The columns are read off the schema: a new one is
tested as soon as it is there.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import Table, Text
from sqlalchemy.types import TypeDecorator

import torchreel
from tests.cli.conftest import Run
from tests.escaping.nasty import EVERYTHING
from torchreel.escaping.characters import is_visible
from torchreel.minifier.bisect.results import Bisection, StepResult
from torchreel.minifier.bisect.steps import BisectStep
from torchreel.minifier.cases.case import Case
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.scripts.validation.issues import check_issue
from torchreel.minifier.storage.findings import keep_finding
from torchreel.releases.results import Run as ReleaseRun
from torchreel.releases.results import Survey
from torchreel.releases.results import Tried as Release
from torchreel.store import Signature, Store, canonical_json, queries, schema
from torchreel.store.blobs.pages import write_pages
from torchreel.store.writer import Writer

CANARY = "ca\U000e0041nary"
EVIL = f"{CANARY}{EVERYTHING}".replace("\ud800", "")
# What rows are found by: with another text there, nothing would be read and nothing shown.
KEYS = {
    "recordings.kind", "compiles.compile_id", "compiles.status", "checkpoints.entry",
    "failures.failure_class", "failures.stage", "findings.kind", "events.kind", "blobs.codec",
    "event_pages.kinds",
}  # fmt: skip
# By verb: which compile (left out: the one that failed), and the options.
LISTINGS = [
    *[("ls", "", option) for option in ("--table", "--json", "--csv", "--nl")],
    ("show", ""), ("show", "", "--json"), ("show", "", "--events"),
    ("show", "", "--events", "--json"), ("show", "", "--graph", "dynamo"),
    ("show", "", "--code"), ("show", "", "--traceback"), ("why", "#1/0/1", "recompile"),
    ("why", "#1/0/1", "s"), ("why-recompile", "#1/0/1"), ("guards", "#1/0/1"),
    ("guards", "#1/0/1", "--json"), ("shapes", "#1/0/1"), ("shapes", "#1/0/1", "--json"),
]  # fmt: skip


def fails(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(torch.sin(x))[:, :0]
    return torch.scatter(y, 1, y, y) + 1


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a failure, and with a row in every table that has something to say of it."""
    path = tmp_path_factory.mktemp("plain") / "run.db"
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (torch.relu(x) * x.size(0)).sum(), backend="eager")
    with torchreel.record(path):
        for size in (3, 4, 5):
            compiled(torch.ones(size, 2))
        with suppress(Exception):
            torch.compile(fails)(torch.randn(2, 3))
    with Store.open(path, write=True) as store:
        (failure,) = queries.failures(store)
        compile = queries.compile_by_id(store, failure.compile_id or 0)
        case = starting_cases(store, compile, failure)[0]
        assert isinstance(case, Case)
        with store.writer() as w:
            _add_history(w, compile.id, failure.id, case)
        signature, step = failure.signature, BisectStep("inductor", "lowerings", 2)
        line = "torch._inductor.config.cpp.simdlen = 0"
        told = Explanation((line,), False, "x is y", ("any dtype",)).to_json()
        tried = (StepResult(step, False, "other", "a detail"), StepResult(step, True, "same"))
        found = Bisection("inductor", "lowerings", 3, "aten.add", line, tried).to_json()
        keep_finding(store, "explanation", case, signature, "e", told)
        keep_finding(store, "bisection", case, signature, "e", found)  # type: ignore[arg-type]
        survey = Survey("2.13.0", (Release("2.13.0", (ReleaseRun("same", "a detail"),)),))
        keep_finding(store, "releases", case, signature, "e", survey.to_json())
    return path


def _add_history(w: Writer, compile: int, failure: int, case: Case) -> None:
    document = w.blob(case.to_bytes())
    w.put("cases", digest=case.digest, failure_id=failure, call_nodes=3, document=document)
    other = Signature("exception", "lowering", "", ("KeyError",), ("torch.a:b",), "another")
    known = {"start_case": case.digest, "best_case": case.digest, "status": "fixpoint"}
    counts = {"oracle_runs": 3, "cache_hits": 0, "seconds": 2.5, "started_ns": 1}
    row = w.add("reductions", failure_id=failure, **known, **counts)
    w.add(
        "by_catch",
        reduction_id=row,
        signature_digest=other.digest,
        signature=other.to_json(),
        case_digest=case.digest,
    )
    w.add(
        "output_codes", compile_id=compile, partition="", ordinal=0, digest=w.blob(b"def f(): ...")
    )
    w.add("replays", compile_id=compile, entry="graph", verdict="identical", compared=[], detail="")
    w.add_many(
        "lost", [{"recording_id": 1, "reason": "r", "place": "p", "count": 1, "message": "m"}]
    )


def is_text(type_: object) -> bool:
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl
    return isinstance(type_, Text)


def columns() -> Iterator[tuple[Table, str]]:
    """The text columns of all tables, but for those that name a blob or a row."""
    names = {"digest", "payload", "traceback", "tensors", "document", "start_case", "best_case"}
    for table in schema.metadata.sorted_tables:
        for column in table.columns:
            name = column.name
            if is_text(column.type) and name not in names and not name.endswith("_digest"):
                yield table, name


def hostile(text: str) -> str:
    """Another text for each that there was; a formula for a spreadsheet."""
    return f"={text}{EVIL}"


def spoilt(tree: Any) -> Any:
    """A document in which every text is hostile; what decides how it is read stays."""
    if isinstance(tree, dict):
        kept = ("failure_class", "signal", "k", "fields", "stage", "name", "workaround")
        return {key: x if key in kept else spoilt(x) for key, x in tree.items()}
    if isinstance(tree, list):
        return [spoilt(item) for item in tree]
    return tree + EVIL if isinstance(tree, str) else tree


def spoil(w: Writer, table: Table, column: str) -> int:
    """Put hostile text in a column; returns how many rows were changed."""
    connection = w.connection
    if not list(connection.exec_driver_sql(f"PRAGMA table_info({table.name})")):
        return 0
    order = ", ".join(key.name for key in table.primary_key)
    keys = [key.name for key in table.primary_key]
    rows = connection.exec_driver_sql(f"SELECT {column}, {order} FROM {table.name}").all()
    is_json = isinstance(table.columns[column].type, schema.JsonText)
    changed = 0
    for value, *key in rows:
        if value is None or f"{table.name}.{column}" in KEYS:
            continue
        new = canonical_json(spoilt(json.loads(value))).decode() if is_json else hostile(value)
        where = " AND ".join(f"{name} = ?" for name in keys)
        command = f"UPDATE {table.name} SET {column} = ? WHERE {where}"
        connection.exec_driver_sql(command, (new, *key))
        changed += new != value
    return changed


def spoil_blobs(store: Store, w: Writer) -> int:
    """The same for the documents and texts behind digests; returns how many there were."""
    places = [
        ("event_pages", "digest"), ("graphs", "digest"), ("output_codes", "digest"),
        ("failures", "traceback"), ("events", "payload"),
    ]  # fmt: skip
    changed = 0
    for table, column in places:
        found = w.connection.exec_driver_sql(f"SELECT id, {column} FROM {table}").all()
        for row, digest in found:
            if digest is None:
                continue
            new = w.blob(spoilt_blob(store.read_blob(digest)))
            command = f"UPDATE {table} SET {column} = ? WHERE id = ?"
            changed += w.connection.exec_driver_sql(command, (new, row)).rowcount
    return changed


def spoilt_blob(data: bytes) -> bytes:
    if data.startswith(b"[\n"):  # pages: one document on each line
        lines = (line.removesuffix(b",") for line in data.split(b"\n")[1:-1])
        return write_pages([canonical_json(spoilt(json.loads(line))) for line in lines])
    try:
        return canonical_json(spoilt(json.loads(data)))
    except ValueError:
        return EVIL.encode() + data


@pytest.fixture(scope="module")
def evil(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store with hostile text in all columns that are no keys, and in its documents."""
    return _copied(plain, tmp_path_factory.mktemp("evil"), blobs=True)


@pytest.fixture(scope="module")
def spoken(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its documents as they were, so that it can be exported."""
    return _copied(plain, tmp_path_factory.mktemp("spoken"), blobs=False)


def _copied(plain: Path, folder: Path, *, blobs: bool) -> Path:
    path = folder / "run.db"
    shutil.copy(plain, path)
    with Store.open(path, write=True) as store, store.writer() as w:
        changed = {f"{t.name}.{c}": spoil(w, t, c) for t, c in columns()}
        if blobs:
            assert spoil_blobs(store, w) > 5, "next to nothing was changed"
    assert sum(map(bool, changed.values())) > 30, changed
    return path


def check_shown(run: Run, *words: object) -> str:
    """Run a command that lists; nothing that it writes is raw.  Returns what it wrote."""
    result = run(*words)
    assert result.status in (0, 1, 2, 3), result
    for stream in (result.out, result.err):
        assert "Traceback (most recent call last)" not in stream.replace(EVIL, "") or (
            "--traceback" in words
        )
        assert CANARY not in stream
        assert is_visible(stream), words
    return result.out


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_a_listing_shows_text_that_can_be_seen(
    run: Run, evil: Path, words: tuple[str, ...]
) -> None:
    (verb, place, *options) = words
    shown = check_shown(run, verb, f"{evil}{place}", *options)
    if "--json" in options and shown:
        json.loads(shown)
    if "--nl" in options:
        assert [json.loads(line) for line in shown.splitlines()]
    if "--csv" in options:
        cells = [cell for row in csv.reader(io.StringIO(shown)) for cell in row]
        assert any("canary" in c.replace("\\U000e0041", "") for c in cells)
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def test_the_hostile_text_is_on_the_way(run: Run, evil: Path) -> None:
    silent = []
    for words in LISTINGS:
        (verb, place, *options) = words
        found = run(verb, f"{evil}{place}", *options)
        silent += [] if is_told(found.out + found.err) else [(words, found)]
    assert silent == []


def is_told(shown: str) -> bool:
    """Return True if the canary is in a text, spelled out."""
    return "ca\\U000e0041nary" in shown or "\\udb40\\udc41" in shown


@pytest.mark.parametrize("words", [("diff",), ("diff", "--json"), ("diff", "--all")], ids=" ".join)
def test_a_diff_shows_text_that_can_be_seen(
    run: Run, plain: Path, evil: Path, words: tuple[str, ...]
) -> None:
    (verb, *options) = words
    check_shown(run, verb, plain, evil, *options)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_hostile_key_is_refused_or_shown_as_text(
    run: Run, plain: Path, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (table, column) = tmp_path / "run.db", key.split(".")
    shutil.copy(plain, path)
    monkeypatch.setitem(globals(), "KEYS", set())
    with Store.open(path, write=True) as store, store.writer() as w:
        spoil(w, schema.metadata.tables[table], column)
    for words in (("ls",), ("show",), ("show", "--json"), ("why", "recompile")):
        check_shown(run, words[0], path, *words[1:])


def test_a_trace_is_written_as_torch_writes_it(run: Run, evil: Path, tmp_path: Path) -> None:
    check_shown(run, "export", evil, "--format", "torch-trace", "-o", tmp_path)
    for file in tmp_path.iterdir():
        for line in file.read_bytes().split(b"\n"):
            # A record, a line of its payload, or the end: nothing else begins a line.
            assert line[:1] in (b"V", b"\t", b""), line[:80]


@pytest.mark.slow
def test_an_export_has_the_structure_of_one_with_harmless_text(
    run: Run, plain: Path, spoken: Path, tmp_path: Path
) -> None:
    for name, path in (("plain", plain), ("evil", spoken)):
        result = run("export", path, "-o", tmp_path / name, "--checks", 1)
        assert result.status in (0, 1), result.err
        assert is_visible(result.out + result.err)
        assert CANARY not in result.out + result.err
    for name in ("repro.py", "test_repro.py"):
        one, other = ((tmp_path / side / name).read_text() for side in ("plain", "evil"))
        assert ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
        assert is_visible(other)
    issue = (tmp_path / "evil" / "issue.md").read_text()
    assert check_issue(issue) == issue
    assert "ca\\U000e0041nary" in issue
    assert "**Component**" in issue, "what bisect found is not in it"
    assert "**Releases**" in issue, "what releases found is not in it"
    assert "Met on the way" in issue, "what a reduction met is not in it"
    assert CANARY not in issue


@pytest.mark.slow
def test_a_script_that_may_not_be_written_leaves_no_file(
    run: Run, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if escaping had a hole: what the comments of a header are made of is let through."""
    through: Callable[[object], list[str]] = lambda line: [f"# {line}\nimport socket"]  # noqa: E731
    monkeypatch.setattr("torchreel.minifier.scripts.script.comment_lines", through)
    result = run("export", plain, "-o", tmp_path / "out")
    assert result.status == 3, result
    assert "may not hold the import of 'socket'" in result.err
    assert not (tmp_path / "out").exists()

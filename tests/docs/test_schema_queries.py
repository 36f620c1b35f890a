"""docs/schema.md is true: it names every table and column, and its queries answer as they say."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.rows import add_compile, add_failure, add_graph, add_recording, add_stage
from torchreel.store import ConfigEntry, Signature, Store
from torchreel.store.schema import metadata

PAGE = Path(__file__).parents[2].joinpath("docs", "schema.md").read_text()
QUERIES = re.findall(r"^([^\n]+\?)\n\n```sql\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)

MS = 1_000_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """A store with a failed, an ok and a crashed compile, read as any tool reads it."""
    path = tmp_path_factory.mktemp("docs") / "run.db"
    with Store.open(path, create=True) as store, store.writer() as w:
        recording = add_recording(w, status="died", exit_signal=11)
        config = w.config([ConfigEntry("torch._inductor.config", "cpp.threads", 1)])
        failed, _, crashed = compiles = [
            add_compile(w, recording, f"{n}/0", frame_line=n, status=status, config_id=config)
            for n, status in enumerate(["failed", "ok", "crashed"])
        ]
        add_compile(w, recording, "1/1", frame_line=1)
        for compile_, targets in zip(compiles, ["ab", "bc", "c"], strict=True):
            graph = add_graph(w, compile_)
            for target in targets:
                row = {"graph_id": graph, "depth": 0, "target": f"aten.{target}", "count": 1}
                w.add("graph_targets", **row)
        add_stage(w, failed, "joint", started_ns=MS, ended_ns=4 * MS)
        add_stage(w, crashed, "lowering", partition="forward", status="open")
        lowering = Signature("exception", "lowering", message="m")
        for _ in range(2):
            add_failure(w, recording, failed, lowering, message="m")
        add_failure(w, recording, crashed, Signature("crash", "lowering", signal="SIGSEGV"))
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    yield connection
    connection.close()


ANSWERS: dict[str, list[tuple[object, ...]]] = {
    "Which bugs": [(2, "exception", "lowering", "m"), (1, "crash", "lowering", "")],
    "Which frames": [("f", "m.py", 1, 2), ("f", "m.py", 0, 1), ("f", "m.py", 2, 1)],
    "Where did": [("0/0", "joint", "", 3.0)],
    "Which operators": [("aten.a",)],
    "What was": [(1, "SIGSEGV", "2/0", "lowering", "forward")],
    "Which config": [("torch._inductor.config", "cpp.threads", "1", 2)],
}


@pytest.mark.parametrize(("question", "query"), QUERIES, ids=lambda text: text[:24])
def test_a_query_answers_its_question(
    database: sqlite3.Connection, question: str, query: str
) -> None:
    (expected,) = [answer for start, answer in ANSWERS.items() if question.startswith(start)]
    found = database.execute(query).fetchall()
    # rows that the query puts in no order
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_every_answer_has_its_question() -> None:
    assert len(QUERIES) == len(ANSWERS)


def test_the_page_names_every_table_and_column() -> None:
    described = {
        name: set(re.findall(r"`(\w+)`", columns))
        for name, columns in re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", PAGE, re.MULTILINE)
    }
    assert described == {name: set(table.columns.keys()) for name, table in metadata.tables.items()}

"""Import and export of the trace format that `TORCH_TRACE` writes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.recorder.conftest import Record as RecordFixture
from torchreel.errors import MissingStore, RefusedError, UsageError
from torchreel.recorder.trace_import import import_trace
from torchreel.store import Store, parse, queries
from torchreel.store.records import Event
from torchreel.store.trace.export import export_trace
from torchreel.store.trace.metadata import compile_name
from torchreel.store.trace.trace_records import Fault, Record, read

PROGRAM = """
import torch

def f(x, n):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos() + n

compiled = torch.compile(f, backend="aot_eager")
compiled(torch.ones(3, requires_grad=True), 2).sum().backward()

def broken(gm, inputs):
    raise RuntimeError("no such thing")

try:
    torch.compile(lambda x: x.tan(), backend=broken)(torch.ones(2))
except torch._dynamo.exc.BackendCompilerFailed:
    pass
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch alone wrote for `PROGRAM`."""
    folder = tmp_path_factory.mktemp("trace")
    folder.joinpath("program.py").write_text(PROGRAM)
    variables = {**os.environ, "TORCH_TRACE": str(folder / "logs")}
    subprocess.run([sys.executable, "program.py"], env=variables, cwd=folder, check=True)
    return folder / "logs"


def _records(directory: Path) -> list[Record]:
    (file,) = directory.iterdir()
    with file.open("rb") as stream:
        found = list(read(stream, file.stat().st_mtime_ns))
    assert all(isinstance(record, Record) for record in found)
    return [record for record in found if isinstance(record, Record)]


def _imported(directory: Path, path: Path) -> tuple[list[Event], dict[str, str]]:
    """Events of the last recording, and what was lost: reason and first message."""
    import_trace(directory, path)
    with Store.open(path) as store:
        recording = queries.recordings(store)[-1]
        lost = {
            row.reason: f"{row.count} {row.message}" for row in queries.lost(store, recording.id)
        }
        return queries.events(store, recording), lost


# -- what a trace becomes -----------------------------------------------------------------------


def test_a_trace_becomes_a_recording_with_its_compiles(trace: Path, path: Path) -> None:
    (imported,) = import_trace(trace, path)
    records = _records(trace)
    assert (imported.events, imported.compiles, imported.lost) == (len(records), 4, 0)
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        assert (recording.kind, recording.status, recording.rank) == ("import", "done", None)
        assert recording.argv == [imported.file]
        assert (recording.pid, recording.started_ns) == (records[0].pid, records[0].time_ns)
        assert recording.ended_ns == records[-1].time_ns
        assert queries.environment(store, recording.id) == {"torch": torch.__version__}
        rows = queries.compiles(store, recording.id)
    found = [(row.compile_id, row.attempt, row.frame_name, row.status) for row in rows]
    assert found == [
        ("0/0", 0, "f", "restarted"),
        ("0/0", 1, "f", "ok"),
        ("1/0", 0, "torch_dynamo_resume_in_f_at_6", "ok"),
        ("2/0", 0, "<lambda>", "failed"),
    ]
    assert [Path(row.frame_file).name for row in rows] == ["program.py"] * 4
    assert [row.frame_line for row in rows[:2]] == [4, 4]
    assert [(row.frame_id, row.frame_compile_id) for row in rows[1:3]] == [(0, 0), (1, 0)]
    assert all(row.ended_ns is not None and row.ended_ns >= row.started_ns for row in rows)


def test_each_record_becomes_an_event(trace: Path, path: Path) -> None:
    events, lost = _imported(trace, path)
    records = _records(trace)
    assert len(events) == len(records) > 100
    assert lost == {}
    with Store.open(path) as store:
        compiles = {row.id: row for row in queries.compiles(store, 1)}
        for number, (event, record) in enumerate(zip(events, records, strict=True), 1):
            assert (event.seq, event.kind, event.time_ns) == (number, record.kind, record.time_ns)
            place = {"pathname": record.pathname, "lineno": record.lineno}
            assert event.data == {**record.metadata, **place}
            payload = None if event.payload is None else store.read_blob(event.payload)
            assert payload == record.payload
            name = compile_name(record.metadata)
            assert name == (event.compile_id and compiles[event.compile_id].compile_id)
    names = {event.name for event in events if event.kind == "artifact"}
    assert {"torch_version", "dynamo_error"} <= names


def test_a_failure_is_told(trace: Path, path: Path) -> None:
    import_trace(trace, path)
    with Store.open(path) as store:
        (failure,) = queries.failures(store)
        failing = queries.latest_failing(store)
        assert failing is not None
        assert failing.compile_id == "2/0"
        assert failure.exception_type == "BackendCompilerFailed"
        assert failure.signature.message == "no such thing"
        assert failure.traceback is not None
        assert b"RuntimeError: no such thing" in store.read_blob(failure.traceback)


def test_generated_code_is_found(path: Path, tmp_path: Path) -> None:
    code = "def call(args):\n\treturn args"
    _log(tmp_path / "logs", ({"inductor_output_code": {}, **ID}, code), ({"a": {}, **ID}, None))
    import_trace(tmp_path / "logs", path)
    with Store.open(path) as store:
        (compile_,) = queries.compiles(store, 1)
        (found,) = queries.output_codes(store, compile_)
        assert store.read_blob(found.digest).decode() == code


def test_each_rank_is_a_recording_of_one_run(path: Path, tmp_path: Path) -> None:
    for rank in (0, 3):
        name = f"dedicated_log_torch_trace_rank_{rank}_abc.log"
        _log(tmp_path / "logs", ({"artifact": {"name": "n"}, "rank": rank, **ID}, "x"), name=name)
    imported = import_trace(tmp_path / "logs", path)
    assert [item.recording for item in imported] == [1, 2]
    with Store.open(path) as store:
        rows = queries.recordings(store)
    assert [row.rank for row in rows] == [0, 3]
    assert len({row.run for row in rows}) == 1


def test_a_trace_that_ends_in_a_compile_crashed_there(path: Path, tmp_path: Path) -> None:
    start = {"dynamo_start": {"stack": [{"line": 7, "name": "g", "filename": 4}]}, **ID}
    _log(tmp_path / "logs", ({"str": ["m.py", 4]}, None), (start, None))
    import_trace(tmp_path / "logs", path)
    with Store.open(path) as store:
        (row,) = queries.compiles(store, 1)
    assert (row.status, row.frame_name, row.frame_file, row.frame_line) == (
        "crashed", "g", "m.py", 7,
    )  # fmt: skip


def test_compiled_autograd_has_names_of_its_own(path: Path, tmp_path: Path) -> None:
    ids = [
        {"compiled_autograd_id": 0},
        {"compiled_autograd_id": 0, "frame_id": 3, "frame_compile_id": 1, "attempt": 0},
    ]
    _log(tmp_path / "logs", *(({"artifact": {}, **where}, None) for where in ids))
    import_trace(tmp_path / "logs", path)
    with Store.open(path) as store:
        assert [row.compile_id for row in queries.compiles(store, 1)] == ["!0", "!0/3/1"]


# -- export -------------------------------------------------------------------------------------


def _export(path: Path, directory: Path, address: str = "") -> list[Record]:
    with Store.open(path) as store:
        export_trace(store, parse(f"{path}{address}"), directory)
    return _records(directory)


def test_an_import_is_exported_byte_for_byte(trace: Path, path: Path, tmp_path: Path) -> None:
    import_trace(trace, path)
    _export(path, tmp_path / "out")
    (before,), (after,) = trace.iterdir(), (tmp_path / "out").iterdir()
    assert after.read_bytes() == before.read_bytes()


@pytest.mark.slow
def test_a_recording_is_exported_as_torch_writes_it(path: Path, tmp_path: Path) -> None:
    """In one process, TORCH_TRACE and the recorder see the same records."""
    variables = {
        **os.environ, "TORCH_TRACE": str(tmp_path / "logs"), "TORCHREEL": f"full:{path}",
        "TORCHREEL_REDACT": "none",
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", PROGRAM], env=variables, check=True)
    exported = _export(path, tmp_path / "out", "#1")
    written = _records(tmp_path / "logs")
    assert len(exported) == len(written) > 100
    for ours, theirs in zip(exported, written, strict=True):
        assert (ours.pid, ours.pathname, ours.lineno) == (
            theirs.pid,
            theirs.pathname,
            theirs.lineno,
        )
        assert dict(ours.metadata) == dict(theirs.metadata)
        assert list(ours.metadata) == list(theirs.metadata)
        assert ours.payload == theirs.payload
        assert ours.intact
        assert abs(ours.time_ns - theirs.time_ns) < 5 * 10**9
    imported = tmp_path / "again.db"
    events, lost = _imported(tmp_path / "out", imported)
    assert [event.kind for event in events] == [record.kind for record in written]
    assert lost == {}


def test_one_compile_is_exported_with_the_names_it_needs(
    trace: Path, path: Path, tmp_path: Path
) -> None:
    import_trace(trace, path)
    records = _export(path, tmp_path / "out", "#1/1/0")
    mine = [record for record in records if record.kind != "str"]
    assert {compile_name(record.metadata) for record in mine} == {"1/0"}
    everything = _records(trace)
    assert len(mine) == sum(compile_name(record.metadata) == "1/0" for record in everything)
    assert len(records) - len(mine) == sum(record.kind == "str" for record in everything)


def test_names_explained_before_the_recording_are_exported(
    record: RecordFixture, tmp_path: Path
) -> None:
    """torch explains a file name once in a process; this is a later recording of it."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    for _ in range(2):
        torch._dynamo.reset()
        log = record(lambda: torch.compile(f, backend="eager")(torch.ones(2)))
    kinds = [event.kind for event in queries.events(log.store, log.recording)]
    assert kinds.count("trace.strings") == 1
    with Store.open(log.store.target) as store:
        export_trace(store, parse(f"{log.store.target}#{log.recording.id}"), tmp_path / "out")
    records = _records(tmp_path / "out")
    known: dict[int, str] = {}
    used: set[int] = set()
    for found in records:
        if found.kind == "str":
            name, number = found.metadata["str"]  # type: ignore[misc]
            known[number] = name  # type: ignore[index, assignment]
        elif found.kind == "dynamo_start":
            stack = found.metadata["dynamo_start"]["stack"]  # type: ignore[index, call-overload]
            used |= {frame["filename"] for frame in stack}
    assert used
    assert used <= set(known)
    assert __file__ in {known[number] for number in used}


def test_nothing_is_overwritten(trace: Path, path: Path, tmp_path: Path) -> None:
    import_trace(trace, path)
    _export(path, tmp_path / "out")
    with pytest.raises(UsageError, match="exists already: use --force"):
        _export(path, tmp_path / "out")
    with Store.open(path) as store:
        (again,) = export_trace(store, parse(str(path)), tmp_path / "out", force=True)
    assert again.records == len(_records(trace))


def test_a_store_without_a_trace_has_nothing_to_export(path: Path, tmp_path: Path) -> None:
    with Store.open(path, create=True) as store, pytest.raises(UsageError, match="no record"):
        export_trace(store, parse(str(path)), tmp_path / "out")


# -- strangers' traces --------------------------------------------------------------------------

ID = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
PREFIX = b"V0115 10:00:00.000001 77 torch/x.py:1] "


def _log(
    directory: Path, *records: tuple[dict[str, object], str | None] | bytes,
    name: str = "dedicated_log_torch_trace_x.log",
) -> Path:  # fmt: skip
    """A log file by hand; bytes go into it as they are."""
    directory.mkdir(exist_ok=True)
    file = directory / name
    with file.open("wb") as stream:
        for item in records:
            if isinstance(item, bytes):
                stream.write(item)
                continue
            metadata, payload = item
            if payload is not None:
                metadata = {**metadata, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
            stream.write(PREFIX + json.dumps(metadata).encode() + b"\n")
            for line in payload.split("\n") if payload is not None else ():
                stream.write(b"\t" + line.encode() + b"\n")
    return directory


GOOD: tuple[dict[str, object], str | None] = ({"artifact": {"name": "good"}, **ID}, "p\nq")


@pytest.mark.parametrize(
    ("junk", "reason"),
    [
        (b"no record at all\n", "a line that is no record"),
        (b"\tan orphan of a payload\n", "a line that is no record"),
        (b"\xff\xfe\x00\x80\n", "a line that is no record"),
        (PREFIX + b'{"artifact": {"name"\n', "a record that can't be read"),
        (PREFIX + b'{"artifact": "\xff"}\n', "a record that can't be read"),
        (PREFIX + b"{" + b'"a":[' * 100_000 + b"\n", "a record that can't be read"),
        (PREFIX + b'{"n": ' + b"9" * 10_000 + b"}\n", "a record that can't be read"),
        (b'V1399 99:99:99.000001 77 torch/x.py:1] {"a": 1}\n', "a record that can't be read"),
        (b"V0115 10:00:00.000001 77 " + b"x" * 100_000 + b"\n", "a line that is no record"),
    ],
)
def test_what_is_no_record_is_counted(path: Path, tmp_path: Path, junk: bytes, reason: str) -> None:
    events, lost = _imported(_log(tmp_path / "logs", junk, GOOD, junk, GOOD), path)
    assert [event.name for event in events] == ["good", "good"]
    # An orphan behind a record is taken for a line of its payload, which the digest tells.
    orphan = junk.startswith(b"\t")
    assert lost[reason].startswith("1 first at event 1: " if orphan else "2 first at event 1: ")
    assert ("a payload that is not what its digest says" in lost) == orphan


def test_a_payload_that_is_cut_off_is_counted_and_kept(path: Path, tmp_path: Path) -> None:
    file = _log(tmp_path / "logs", GOOD, GOOD) / "dedicated_log_torch_trace_x.log"
    file.write_bytes(file.read_bytes()[:-2])
    events, lost = _imported(tmp_path / "logs", path)
    assert list(lost) == ["a payload that is not what its digest says"]
    with Store.open(path) as store:
        assert [store.read_blob(str(event.payload)) for event in events] == [b"p\nq", b"p\n"]


def test_lines_and_payloads_of_any_length_are_bounded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchreel.store.trace.trace_records.LONGEST_LINE", 1000)
    monkeypatch.setattr("torchreel.store.trace.trace_records.LARGEST_PAYLOAD", 500)
    long = PREFIX + b'{"artifact": "' + b"x" * 5000 + b'"}\n'
    many: tuple[dict[str, object], str] = ({"artifact": {"name": "many"}, **ID}, "line\n" * 1000)
    events, lost = _imported(_log(tmp_path / "logs", long, many, GOOD), path)
    assert [event.name for event in events] == ["many", "good"]
    assert set(lost) == {
        "a record that can't be read", "a payload that is not what its digest says",
    }  # fmt: skip
    with Store.open(path) as store:
        assert len(store.read_blob(str(events[0].payload))) <= 500


HOSTILE: list[dict[str, object]] = [
    {"dynamo_start": {"stack": "no stack"}, "frame_id": 2**80, "frame_compile_id": 0},
    {"dynamo_start": {"stack": [[]]}, "frame_id": "../..", "frame_compile_id": {}},
    {"dynamo_start": {"stack": [{"line": -5, "name": [], "filename": 99}]}, **ID},
    {"compilation_metrics": {"fail_type": ["x"], "fail_reason": {"a": 1}}, **ID},
    {"str": "neither a pair"}, {"str": [1, 2, 3]}, {"str": ["../../etc/passwd", 10**30]},
    {"rank": -1, "frame_id": True}, {"rank": "zero", "artifact": {"name": {"deep": []}}}, {},
    {"artifact": {"name": "../../../escape"}, **ID}, {"": {"name": "\ud800"}, **ID},
    {"artifact": {"name": "torch_version"}}, {"artifact": {"x": float("nan")}, "attempt": -1},
]  # fmt: skip


def test_hostile_metadata_is_data(path: Path, tmp_path: Path) -> None:
    records: list[tuple[dict[str, object], str | None]] = [(found, "[" * 9999) for found in HOSTILE]
    events, lost = _imported(_log(tmp_path / "logs", *records), path)
    assert len(events) == len(HOSTILE)
    assert lost == {}
    exported = _export(path, tmp_path / "out")
    assert len(exported) == len(HOSTILE)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["logs", "out", "run.db"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == [
        "dedicated_log_torch_trace_recording_1.log"
    ]


def test_names_in_a_store_lead_nowhere(path: Path, tmp_path: Path) -> None:
    """A path of an event is text of the prefix, on one line, whatever it is."""
    _log(tmp_path / "logs", b'V0115 10:00:00.000001 77 /etc/../a b]c:9] {"a": {}}\n')
    (event,), _ = _imported(tmp_path / "logs", path)
    assert isinstance(event.data, dict)
    assert event.data["pathname"] == "/etc/../a b]c"
    (again,) = _export(path, tmp_path / "out")
    assert again.pathname == "/etc/../a_b_c"


def test_only_regular_logs_of_the_directory_are_read(path: Path, tmp_path: Path) -> None:
    logs = _log(tmp_path / "logs", GOOD)
    secret = tmp_path / "secret"
    secret.write_text("not yours")
    (logs / "dedicated_log_torch_trace_link.log").symlink_to(secret)
    os.mkfifo(logs / "dedicated_log_torch_trace_pipe.log")
    (logs / "dedicated_log_torch_trace_dir.log").mkdir()
    (logs / "other.log").write_text("something else")
    imported = import_trace(logs, path)
    assert [item.file for item in imported] == ["dedicated_log_torch_trace_x.log"]


def test_what_can_not_be_imported_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingStore, match="No such file"):
        import_trace(tmp_path / "nowhere", path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no log of TORCH_TRACE"):
        import_trace(tmp_path / "empty", path)
    junk = _log(tmp_path / "logs", b"junk\n" * 7)
    with pytest.raises(RefusedError, match="found 7 other lines"):
        import_trace(junk, path)
    with Store.open(path) as store:
        assert queries.recordings(store) == []


def test_the_year_of_a_record_is_the_last_possible_one() -> None:
    import io
    from datetime import datetime

    written = int(datetime(2026, 1, 2, 12).timestamp()) * 10**9
    text = b'V1231 23:59:59.000001 1 a.py:1] {"a": {}}\nV0102 11:00:00.000000 1 a.py:1] {"a": {}}\n'
    times = [
        datetime.fromtimestamp(found.time_ns // 10**9)
        for found in read(io.BytesIO(text), written)
        if not isinstance(found, Fault)
    ]
    assert times == [datetime(2025, 12, 31, 23, 59, 59), datetime(2026, 1, 2, 11)]

"""Marks of compiles that returned: what is read of them, and what follows for a dead process."""

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.store.rows import add_compile, add_recording, add_stage
from torchreel.store import Store, post_mortem, queries
from torchreel.store.failures.signature import crash_signature, lowered_when_it_crashed
from torchreel.store.post_mortem import settle
from torchreel.store.processes import marks
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.processes.marks import BESIDE, KEY, NOWHERE, Marks, Place
from torchreel.store.sending.push import push_path

DEAD = 2**31 - 1
"""No process has that number."""
BEGAN = 1000


def dead_recording(store: Store, *statuses: str, **columns: object) -> int:
    """A recording of a dead process that wrote marks; its compiles began at 1, 2, ..."""
    with store.writer() as w:
        recording = add_recording(w, status="running", pid=DEAD, started_ns=BEGAN, **columns)
        w.put("environment", recording_id=recording, key=KEY, value=BESIDE)
        for number, status in enumerate(statuses, 1):
            row = add_compile(w, recording, f"{number}/0", status=status, started_ns=number)
            add_stage(w, row, "dynamo", status="open" if status == "running" else "ok")
    return recording


def marked(path: Path, *found: tuple[int, str]) -> Marks:
    made = Marks()
    assert made.create(str(path), DEAD, BEGAN) == BESIDE
    for began, status in found:
        made.mark(began, status)
    return made


def statuses(store: Store, recording: int) -> list[str]:
    return [row.status for row in queries.compiles(store, recording)]


def test_only_a_compile_that_the_compiler_was_at_work_on_crashed(store: Store, path: Path) -> None:
    recording = dead_recording(store, "running", "running", "running", "ok")
    marked(path, (1, "ok"), (2, "ok"), (3, "failed"), (2, "running"))
    expected = ["ok", "crashed", "failed", "ok"]
    assert statuses(store, recording) == expected
    assert settle(store) == 1
    assert list(marks.left_behind(str(path))) == []
    assert statuses(store, recording) == expected
    (failure,) = queries.failures(store)
    first, second = queries.compiles(store, recording)[:2]
    assert failure.compile_id == second.id
    assert [queries.open_stage(store, row) is None for row in (first, second)] == [True, False]


def test_a_crash_is_where_the_process_last_was(store: Store, path: Path) -> None:
    """The row of a stage may not have been written when the process dies."""
    recording = dead_recording(store, "running", "running", "running", exit_signal="SIGSEGV")
    made = marked(path)
    for began, place in (
        (1, Place("forward", "inference")),
        (2, Place("codegen", "backward")),
        (1, Place("lowering", "inference", "mm_1")),
        # Of the third, no stage was entered.
        (3, Place("")),
    ):
        made.enter(began, place)
    settle(store)
    found = {row.compile_id: row for row in queries.failures(store)}
    one, two, three = (found[row.id] for row in queries.compiles(store, recording))
    places = [(row.stage, row.partition) for row in (one, two, three)]
    assert places == [("lowering", "inference"), ("codegen", "backward"), ("dynamo", "")]
    assert one.signature == crash_signature("lowering", "inference", "SIGSEGV")
    assert "with SIGSEGV, while it lowered the node mm_1." in one.message
    assert [lowered_when_it_crashed(row.message) for row in (one, two)] == ["mm_1", None]


def test_of_many_places_the_last_are_known(path: Path) -> None:
    made = marked(path)
    for number in range(1, 101):
        made.enter(number, Place("x" * number))
    ends = marks.read(str(path), DEAD, BEGAN)
    assert ends is not None
    assert sorted(ends.places) == list(range(69, 101))
    assert ends.places[70] == Place("x" * 70)
    assert ends.statuses == {}


@pytest.mark.parametrize("node", ["\x1b[2J", "evil'); import os\n", "a b", "\ud800"])
def test_a_place_that_is_no_name_is_not_known(path: Path, node: str) -> None:
    made = marked(path)
    made.enter(1, Place("lowering", "inference", node))
    made.enter(2, Place("lowering", "inference", "mm_1"))
    ends = marks.read(str(path), DEAD, BEGAN)
    assert ends is not None
    assert ends.places == {2: Place("lowering", "inference", "mm_1")}


def test_a_file_of_an_older_version_has_no_places(path: Path) -> None:
    """It has marks where places are now."""
    marked(path, (1, "ok"))
    file = marks.path_of(str(path), DEAD, BEGAN)
    data = bytearray(file.read_bytes())
    data[:8] = b"reelmark"
    data[-32:] = struct.pack("<QQQQ", 511, 7, 2, 2)
    file.write_bytes(data)
    ends = marks.read(str(path), DEAD, BEGAN)
    assert ends is not None
    assert (ends.statuses, ends.places) == ({1: "ok", 2: "failed"}, {})


@pytest.mark.parametrize("limit", [10, 10_000, 16_000, 16_384])
def test_no_mark_ends_a_process_that_may_not_write_so_far(path: Path, limit: int) -> None:
    """Python ignores the signal for that; a program may have it do what it does."""
    text = f"""
import resource, signal
from torchreel.store.processes.marks import Marks, Place
made = Marks()
made.create({str(path)!r}, {DEAD}, {BEGAN})
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
for number in range(600):
    made.mark(number, "ok")
    made.enter(number, Place("forward"))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    ends = marks.read(str(path), DEAD, BEGAN)
    assert ends is not None
    assert len(ends.places) == (32 if limit == 16_384 else 0 if limit == 10 else len(ends.places))


def test_without_its_marks_nobody_knows(store: Store) -> None:
    recording = dead_recording(store, "running")
    assert statuses(store, recording) == ["unknown"]
    settle(store)
    assert statuses(store, recording) == ["unknown"]
    assert queries.failures(store) == []


def test_a_fault_without_marks_is_a_crash(store: Store) -> None:
    recording = dead_recording(store, "running", exit_signal="SIGSEGV")
    settle(store)
    assert statuses(store, recording) == ["crashed"]
    assert len(queries.failures(store)) == 1


def test_a_process_that_ended_in_order_and_could_not_say_so(store: Store, path: Path) -> None:
    recording = dead_recording(store, "running")
    marked(path, (1, "ok")).end(written=False)
    assert queries.recording(store, recording).status == "done"
    settle(store)
    with store.connect() as connection:
        found = connection.exec_driver_sql("SELECT status FROM recordings").scalar()
    assert (found, statuses(store, recording)) == ("done", ["ok"])


def test_marks_of_another_machine_are_left_until_they_are_old(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It may write on this disk, and its recording not be in the store yet.
    now = time.time_ns()
    long_ago = now - 2 * 3600 * 10**9
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(marks, "machine_identity", lambda: "another boot pid:[1]")
        for began in (now, long_ago):
            assert Marks().create(str(path), DEAD, began) == BESIDE
    settle(store)
    assert list(marks.left_behind(str(path))) == [(DEAD, now)]


def test_a_process_of_another_machine_that_wrote_lately_may_go_on(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording = dead_recording(store, "running")
    marked(path, (1, "running"))
    monkeypatch.setattr(marks, "_machine", lambda: b"another machine!")
    assert [row.status for row in queries.recordings(store)] == ["running"]
    assert settle(store) == 0
    assert list(marks.left_behind(str(path))) == [(DEAD, BEGAN)]
    with Store.open(tmp_path / "joined.db", create=True) as target:
        assert push_path(str(path), target).running == 1
        # Long ago, or before this machine was started, which it may have ended.
        old = time.time() - 7200
        for name in (path, marks.path_of(str(path), DEAD, BEGAN)):
            os.utime(name, (old, old))
        assert sorted(push_path(str(path), target).sent) == [recording]
    assert statuses(store, recording) == ["crashed"]


def test_a_push_waits_for_a_process_of_another_machine_however_long_it_is_silent(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording = dead_recording(store, "running")
    with store.writer() as w:
        w.put("environment", recording_id=recording, key=PROCESS, value="another-boot pid:[1] 7")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(marks, "machine_identity", lambda: "another-boot pid:[1]")
        made = marked(path, (1, "running"))
    old = time.time() - 7200
    for name in (path, marks.path_of(str(path), DEAD, BEGAN)):
        os.utime(name, (old, old))
    monkeypatch.setattr(post_mortem, "is_on_network", lambda directory: True)
    with Store.open(tmp_path / "joined.db", create=True) as target:
        assert push_path(str(path), target).running == 1
        assert list(marks.left_behind(str(path))) == [(DEAD, BEGAN)]
        made.end(written=False)  # which says that it has ended
        assert sorted(push_path(str(path), target).sent) == [recording]


def test_marks_of_a_process_of_this_machine_go_when_it_is_gone(store: Store, path: Path) -> None:
    now = time.time_ns()
    for pid in (DEAD, os.getpid()):
        assert Marks().create(str(path), pid, now) == BESIDE
    settle(store)
    assert list(marks.left_behind(str(path))) == [(os.getpid(), now)]


def test_an_end_that_the_store_knows_leaves_no_file(path: Path) -> None:
    marked(path, (1, "ok")).end(written=True)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_set_before_there_is_a_file_is_not_lost(path: Path) -> None:
    made = Marks()
    made.mark(7, "ok")
    made.create(str(path), DEAD, BEGAN)
    found = marks.read(str(path), DEAD, BEGAN)
    assert found is not None
    assert (found.of(7), found.of(8)) == ("ok", "running")


def test_more_marks_than_there_is_room_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks.time, "time_ns", iter(range(10_000, 20_000)).__next__)
    marked(path, *((began, "ok") for began in range(1, 601)))
    found = marks.read(str(path), DEAD, BEGAN)
    assert found is not None
    assert len(found.statuses) == 383
    # Of the first ones nothing is left; what began since the oldest that is left never returned.
    assert (found.of(1), found.of(600), found.of(10_700)) == ("unknown", "ok", "running")


@pytest.mark.parametrize("content", [b"", b"mine" * 4096, b"reelmark" + bytes(100)])
def test_another_file_of_that_name(path: Path, content: bytes) -> None:
    marks.path_of(str(path), DEAD, BEGAN).write_bytes(content)
    assert marks.read(str(path), DEAD, BEGAN) is None
    assert Marks().create(str(path), DEAD, BEGAN) == NOWHERE


def test_a_pipe_of_that_name_is_not_waited_for(path: Path) -> None:
    os.mkfifo(marks.path_of(str(path), DEAD, BEGAN))
    assert marks.read(str(path), DEAD, BEGAN) is None


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    made = Marks()
    assert made.create(str(tmp_path / "gone" / "run.db"), DEAD, BEGAN) == NOWHERE
    made.mark(1, "ok")
    made.end(written=False)


def test_marks_of_a_server_are_found_whoever_hides_the_password() -> None:
    secret, hidden = (f"postgresql://me{word}@host/db" for word in (":secret", ""))
    assert marks.path_of(secret, 1, 2) == marks.path_of(hidden, 1, 2)
    assert marks.path_of(secret, 1, 2) != marks.path_of("postgresql://me@other/db", 1, 2)

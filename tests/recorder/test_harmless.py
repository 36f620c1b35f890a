"""Programs that take the store away, close what they did not open, or end at once: nothing changes
for them, and no compile that returned counts as failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchreel
from tests.recorder import programs
from tests.recorder.conftest import RecordedLog
from torchreel.recorder import environment
from torchreel.recorder.launch import ProgramEnd, record_program
from torchreel.recorder.settings import Settings
from torchreel.store import Store, queries
from torchreel.store.processes import marks

COMPILE = "torch.compile(lambda x: x.sin() + 1, backend='eager')(torch.ones(3))\n"


def recorded(program: str, path: Path, mode: str = "full") -> ProgramEnd:
    command = [sys.executable, "-c", programs.PRELUDE + program]
    return record_program(command, path, mode, Settings())


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["full", "flight"])
@pytest.mark.parametrize(("end", "status"), [("os._exit(9)", 9), ("os.kill(os.getpid(), 9)", 137)])
def test_an_end_right_after_a_compile_is_no_crash(
    path: Path, mode: str, end: str, status: int
) -> None:
    assert recorded(COMPILE + end, path, mode).status == status
    with Store.open(path) as store:
        log = RecordedLog(store)
        assert (log.recording.status, log.compile.status) == ("died", "ok")
        assert queries.failures(store) == []
        assert {row.status for row in queries.stages(store, log.compile)} <= {"ok"}
    assert list(marks.left_behind(str(path))) == []


NESTED = """
def backend(graph, inputs):
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))
    os._exit(9)

torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(3))
"""


def test_only_the_outer_one_of_nested_compiles_crashed(path: Path) -> None:
    assert recorded(NESTED, path).status == 9
    with Store.open(path) as store:
        found = [row.status for row in RecordedLog(store).compiles]
        assert sorted(found) in (["crashed", "ok"], ["crashed"])
        assert len(queries.failures(store)) == 1


def test_a_compile_that_raised_is_the_failure_that_it_was(path: Path) -> None:
    refusing = """
def refuse(graph, inputs):
    raise ValueError("no")
try:
    torch.compile(lambda x: x.sin(), backend=refuse)(torch.ones(3))
except Exception:
    os._exit(9)
"""
    assert recorded(refusing, path).status == 9
    with Store.open(path) as store:
        assert RecordedLog(store).compile.status == "failed"
        assert [row.failure_class for row in queries.failures(store)] == ["exception"]


def test_a_recording_that_ends_in_order_leaves_no_marks(path: Path) -> None:
    with torchreel.record(path):
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
        assert len(list(marks.left_behind(str(path)))) == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


CLOSES = """
{compile}
os.closerange(3, 256)
files = [open(f"{folder}/file{{n}}", "w+") for n in range(30)]
for file in files:
    file.write("mine " * 2000)
    file.flush()
torch._dynamo.reset()
{compile}
print([n for n, file in enumerate(files) if open(file.name).read() != "mine " * 2000], flush=True)
sys.exit(7)
"""


@pytest.mark.slow
def test_files_that_get_the_numbers_of_closed_descriptors_are_not_written_to(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    ended = recorded(CLOSES.format(compile=COMPILE, folder=folder), path)
    assert ended.status == 7
    assert capfd.readouterr().out == "[]\n"
    assert {file.read_text() for file in folder.iterdir()} == {"mine " * 2000}
    assert any("was closed by the program" in note for note in ended.notes), ended
    with Store.open(path) as store:
        assert [row.status for row in RecordedLog(store).compiles] == ["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["text", "store"])
def test_a_file_that_is_overwritten_in_place_stays_as_it_was_written(
    path: Path, tmp_path: Path, by: str
) -> None:
    other = tmp_path / "other.db"
    if by == "text":
        other.write_text("mine")
    else:
        Store.open(other, create=True).close()
    overwrite = f"import shutil; shutil.copyfile({str(other)!r}, {str(path)!r})\n"
    again = f"torch._dynamo.reset()\n{COMPILE}sys.exit(7)"
    ended = recorded(COMPILE + overwrite + again, path)
    assert (ended.status, ended.is_recorded) == (7, False)
    assert path.read_bytes() == other.read_bytes()
    assert not Path(f"{path}-wal").exists()


SILENT = (
    COMPILE + "print('out', flush=True); os.unlink({path!r}); torch._dynamo.reset()\n" + COMPILE
)


@pytest.mark.slow
def test_nothing_is_said_among_what_the_program_says(path: Path) -> None:
    program = programs.PRELUDE + SILENT.format(path=str(path)) + "print('err', file=sys.stderr)"
    command = [sys.executable, "-c", "from torchreel.cli import main; main()", "record", "-o"]
    done = subprocess.run(
        [*command, str(path), "--", sys.executable, "-c", program],
        capture_output=True, text=True, env={**os.environ, **programs.ENVIRONMENT},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "out\n")
    said = f"torchreel: nothing was recorded: {path} was deleted while it was recorded into."
    assert done.stderr.splitlines() == ["err", said]


@pytest.mark.slow
def test_without_the_launcher_it_is_said_at_the_end(path: Path) -> None:
    program = programs.PRELUDE + SILENT.format(path=str(path)) + "print('err', file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env={**os.environ, **programs.ENVIRONMENT, "TORCHREEL": f"full:{path}"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "out\n")
    first, *rest = done.stderr.splitlines()
    assert first == "err"
    assert any("was deleted or replaced" in line for line in rest)


@pytest.mark.slow
def test_a_second_recorder_says_so(path: Path, tmp_path: Path) -> None:
    second = COMPILE + (
        f"import torchreel\nwith torchreel.record({str(tmp_path / 'second.db')!r}):\n    {COMPILE}"
    )
    ended = recorded(second, path)
    assert ended.status == 0
    (note,) = ended.notes
    assert f"this process is recorded into {path} already" in note
    assert not (tmp_path / "second.db").exists()


def test_what_is_said_of_the_machine_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may wait for its children, or count them."""
    started: list[object] = []
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda self, *a, **k: started.append(a))
    environment.facts()
    assert started == []


FORKS = """
import shutil
shutil.copy({other!r}, {path!r} + "x")
os.replace({path!r} + "x", {path!r})
if os.fork() == 0:
    torch._dynamo.reset()
    {compile}
    sys.exit(0)
os.wait()
sys.exit(7)
"""


@pytest.mark.slow
def test_a_forked_child_leaves_alone_what_took_the_place_of_the_store(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    Store.open(other, create=True).close()
    names = {"path": str(path), "other": str(other), "compile": COMPILE}
    assert recorded(COMPILE + FORKS.format(**names), path).status == 7
    assert path.read_bytes() == other.read_bytes()

"""`pytest --torchreel`, in processes of its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.store import Store, queries
from torchreel.store.deletion.blobs import sweep

pytest_plugins = ["pytester"]

TESTS = """
    import pytest
    import torch

    def compiled(backend="eager"):
        torch._dynamo.reset()
        return torch.compile(lambda x: x.sin() + 1, backend=backend)

    def broken(gm, inputs):
        raise RuntimeError("on purpose")

    @pytest.fixture
    def made():
        return compiled()(torch.ones(3))

    def test_passes(made):
        assert made is not None

    def test_compile_fails():
        compiled(broken)(torch.ones(2))

    @pytest.mark.parametrize("size", [4, 5])
    def test_wrong(size):
        assert compiled()(torch.ones(size)).sum() == 4 * 1.8414709568023682

    def test_expected_failure():
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            compiled(broken)(torch.ones(2))

    @pytest.mark.xfail
    def test_known_to_fail():
        compiled(broken)(torch.ones(2))

    def test_fails_without_torch():
        assert False

    @pytest.fixture
    def fails_at_the_end():
        yield
        raise ValueError

    def test_teardown(fails_at_the_end):
        compiled()(torch.ones(3))
"""


@pytest.fixture(autouse=True)
def _no_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHREEL", "TORCHREEL_STORE", "TORCHREEL_RUN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow
def test_failing_tests_are_kept_under_their_names(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    path = pytester.path / "kept.db"
    result = pytester.runpytest_subprocess(f"--torchreel={path}")
    result.assert_outcomes(passed=4, failed=3, xfailed=1, errors=1)
    kept = [
        "test_it.py::test_compile_fails",
        "test_it.py::test_wrong[5]",
        "test_it.py::test_teardown",
    ]
    with Store.open(path) as store:
        rows = queries.recordings(store)
        assert [row.run for row in rows] == kept
        assert [row.argv for row in rows] == [["pytest", name] for name in kept]
        assert [row.status for row in rows] == ["done"] * 3
        compiles = [queries.compiles(store, row.id) for row in rows]
        assert [[row.status for row in found] for found in compiles] == [["failed"], ["ok"], ["ok"]]
        (failure,) = queries.failures(store)
        assert "on purpose" in failure.message
        assert queries.events(store, rows[2])
        sweep_found = _blobs(path)
        assert sweep_found
    result.stdout.fnmatch_lines(
        [
            "*= torchreel =*",
            "kept the compiles of 3 failing tests in kept.db",
            f"kept.db#{rows[0].id}  {kept[0]}",
            f"kept.db#{rows[1].id}  {kept[1]}".replace("[", "[[]"),
            f"kept.db#{rows[2].id}  {kept[2]}",
            f"next: torchreel show kept.db#{rows[2].id}",
        ]
    )


@pytest.mark.slow
def test_nothing_is_left_of_passing_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_subprocess("-k", "passes or expected", "--torchreel")
    result.assert_outcomes(passed=2, deselected=6)
    result.stdout.fnmatch_lines(["kept the compiles of 0 failing tests in torchreel.db"])
    path = pytester.path / "torchreel.db"
    with sqlite3.connect(path) as connection:
        for table in ("recordings", "compiles", "event_pages", "failures", "graphs", "blobs"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    connection.close()


@pytest.mark.slow
def test_a_test_that_kills_the_process_is_in_the_store(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os
        import torch

        def kill(gm, inputs):
            os._exit(7)

        def test_dies():
            torch.compile(lambda x: x.sin(), backend=kill)(torch.ones(2))
        """
    )
    result = pytester.runpytest_subprocess("--torchreel")
    assert result.ret == 7
    with Store.open(pytester.path / "torchreel.db") as store:
        (row,) = queries.recordings(store)
        assert row.run.endswith("::test_dies")
        assert row.status == "died"
        assert [found.status for found in queries.compiles(store, row.id)] == ["crashed"]


@pytest.mark.slow
def test_what_was_in_the_store_stays(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    for _ in range(2):
        pytester.runpytest_subprocess("-k", "compile_fails or passes", "--torchreel=run.db")
    with Store.open(pytester.path / "run.db") as store:
        first, second = queries.recordings(store)
        assert first.run == second.run == "test_it.py::test_compile_fails"
        for row in (first, second):
            events = queries.events(store, row)
            payloads = [store.read_blob(e.payload) for e in events if e.payload is not None]
            assert len(payloads) > 10
    with Store.open(pytester.path / "run.db", write=True) as store:
        assert sweep(store) == 0


@pytest.mark.parametrize("option", ["tests", "test_it.py", "test_it.py::test_passes"])
def test_tests_are_not_taken_for_a_store(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(test_it="def test_passes(): pass")
    pytester.mkdir("tests")
    result = pytester.runpytest_subprocess("--torchreel", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--torchreel: '{option}' is no store*"])


def test_the_tests_run_where_nothing_can_be_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_passes(): pass")
    notes = pytester.path / "notes.txt"
    notes.write_text("mine" * 500)
    result = pytester.runpytest_subprocess(f"--torchreel={notes}")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["nothing was recorded: *notes.txt is a text file*"])
    assert notes.read_text() == "mine" * 500


@pytest.mark.slow
def test_a_store_that_breaks_meanwhile_ends_no_session(pytester: pytest.Pytester) -> None:
    """A test overwrites it; the hooks around it and the summary open it again."""
    path = pytester.path / "kept.db"
    pytester.makepyfile(
        test_it=f"""
        import pathlib
        import torch

        def test_overwrites():
            torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
            for file in pathlib.Path({str(path)!r}).parent.glob("kept.db*"):
                file.unlink()
            pathlib.Path({str(path)!r}).write_text("no store " * 1000)

        def test_goes_on():
            pass
        """
    )
    result = pytester.runpytest_subprocess(f"--torchreel={path}")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*can't be read back from the store*"])


def test_settings_that_make_no_sense_are_refused_before_any_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL_SAMPLE", "abc")
    pytester.makepyfile(test_it="def test_passes(): pass")
    result = pytester.runpytest_subprocess("--torchreel=kept.db")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*TORCHREEL_SAMPLE*abc*"])


def test_it_is_not_used_inside_of_a_recording(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL", "full:other.db")
    pytester.makepyfile(test_it="def test_passes(): pass")
    result = pytester.runpytest_subprocess("--torchreel")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*TORCHREEL is set, so the whole run is recorded*"])


def test_without_the_option_nothing_is_loaded(tmp_path: Path) -> None:
    program = (
        "import sys, pytest\n"
        "pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', '.'])\n"
        "print(sorted(m for m in sys.modules if m.startswith(('torch', 'sqlalchemy'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "['torchreel', 'torchreel.pytest_plugin']"


def _blobs(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT count(*) FROM blobs").fetchone()
    connection.close()
    return int(found)

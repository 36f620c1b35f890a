"""`pytest --torchreel`: the compiles of each failing test, named after the test.

Each test has a recording of its own.  That of a test which passes is deleted again; that of a test
which takes the whole process with it is still in the store.  Without the option nothing happens,
and nothing of torchreel but this module is imported.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchreel.recorder.failing_open import fail_open
    from torchreel.store.records import Recording

_SWEEP_EVERY = 100
"""Deleted recordings after which the blobs that only they needed are deleted as well."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--torchreel[=STORE]`."""
    parser.getgroup("torchreel").addoption(
        "--torchreel",
        nargs="?",
        const="",
        metavar="STORE",
        help="Record what torch.compile does in each test, and keep it of those that fail "
        "(in STORE, $TORCHREEL_STORE or torchreel.db).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin, when the option is there."""
    option = config.getoption("--torchreel")
    if option is not None:
        config.pluginmanager.register(_plugin(option), "torchreel-recorder")


def _plugin(option: str) -> object:
    """Return the plugin that records, or one that says at the end why nothing was recorded."""
    from torchreel.errors import StoreError

    if os.environ.get("TORCHREEL"):
        return _Idle("nothing is kept test by test: TORCHREEL is set, so the whole run is recorded")
    try:
        return _Plugin(_checked(option))
    except StoreError as error:
        return _Idle(f"nothing was recorded: {error}")


def _guard() -> fail_open:
    """Return the guard around what we do in a hook: an error there would end pytest."""
    from torchreel.recorder.failing_open import fail_open

    return fail_open("pytest")


class _Idle:
    """Records nothing."""

    def __init__(self, why: str) -> None:
        self._why = why

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why."""
        from torchreel.escaping.characters import visible

        terminalreporter.section("torchreel")
        terminalreporter.write_line(visible(self._why))


def _checked(option: str) -> str:
    """Return the store, absolute; refuses what can't be one before any test has run."""
    from torchreel.errors import UsageError
    from torchreel.recorder.settings import Settings
    from torchreel.store.addressing import default_store
    from torchreel.store.passwords import hidden
    from torchreel.store.recording import open_for_recording

    if not _can_wrap():
        raise pytest.UsageError("--torchreel needs pluggy 1.2 or newer: update pytest.")
    if os.path.isdir(option) or option.endswith(".py") or "::" in option:
        raise pytest.UsageError(
            f"--torchreel: {option!r} is no store; to run these tests, write them first, or "
            f"--torchreel=STORE {option}."
        )
    target = option or default_store()
    target = hidden(target) if "://" in target else os.path.abspath(target)
    try:
        Settings.from_environment()
        open_for_recording(target).close()
    except UsageError as error:
        raise pytest.UsageError(f"--torchreel: {error}") from error
    return target


def _can_wrap() -> bool:
    """Return True if pluggy knows hooks around others that return: since 1.2."""
    return "wrapper" in inspect.signature(pytest.hookimpl.__call__).parameters


def _wrapping() -> Callable[[Any], Any]:
    """Return the decorator of a hook around others; with an old pluggy one that does nothing.

    pytest loads this file for everybody who has torchreel installed.
    """
    return pytest.hookimpl(wrapper=True) if _can_wrap() else lambda function: function


class _Plugin:
    """The hooks around each test of one session."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._failed = False
        self._deleted = 0
        self._known = max((row.id for row in self._recordings()), default=0)

    @_wrapping()
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record a test with its fixtures."""
        from torchreel.recorder import attach, session

        if attach.active() is not None:
            return (yield)  # the program under test records itself
        self._failed = False
        recorder = None
        with _guard(), _named(item.nodeid):
            recorder = session.install_from_environment(f"full:{self.target}")
        try:
            return (yield)
        finally:
            with _guard():
                session.uninstall()
                if recorder is not None and recorder.recording_id is not None:
                    self._settle(recorder.recording_id, item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call or teardown is over."""
        self._failed = self._failed or report.failed

    def _settle(self, recording: int, test: str) -> None:
        """Name what a failing test recorded; delete what a passing one did."""
        from torchreel.store.recording import open_for_recording

        store = open_for_recording(self.target)
        try:
            with store.writer() as writer:
                if self._failed:
                    writer.update("recordings", recording, argv=["pytest", test])
                else:
                    writer.delete("recordings", recording)
                    self._deleted += 1
        finally:
            store.close()
        if self._deleted >= _SWEEP_EVERY:
            self._sweep()

    def _sweep(self) -> None:
        from torchreel.store.database import Store
        from torchreel.store.deletion.blobs import sweep

        self._deleted = 0
        with Store.open(self.target, write=True) as store:
            sweep(store)

    def pytest_sessionfinish(self) -> None:
        """Give back what passing tests took."""
        with _guard():
            if self._deleted:
                self._sweep()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the kept recordings of this process and its workers, and the next commands."""
        terminalreporter.section("torchreel")
        with _guard() as attempt:
            self._summarise(terminalreporter)
        if attempt.kind is not None:
            terminalreporter.write_line("what was kept can't be read back from the store")

    def _summarise(self, terminalreporter: pytest.TerminalReporter) -> None:
        from torchreel.commands.rendering.text import count
        from torchreel.escaping.characters import visible
        from torchreel.escaping.shell import command

        kept = [row for row in self._recordings() if row.id > self._known]
        store = os.path.relpath(self.target) if "://" not in self.target else self.target
        tests = len({row.run for row in kept})
        terminalreporter.write_line(
            f"kept the compiles of {count(tests, 'failing test')} in {visible(store)}"
        )
        for row in kept:
            terminalreporter.write_line(f"{visible(store)}#{row.id}  {visible(row.run)}")
        if kept:
            terminalreporter.write_line(
                f"next: {command('torchreel', 'show', f'{store}#{kept[-1].id}')}"
            )

    def _recordings(self) -> list[Recording]:
        from torchreel.store import queries
        from torchreel.store.database import Store

        with Store.open(self.target) as store:
            return queries.recordings(store)


@contextmanager
def _named(test: str) -> Iterator[None]:
    """Call a run like the test while its recording begins; others are not touched."""
    from torchreel.recorder.session import RUN_VARIABLE

    before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = test
    try:
        yield
    finally:
        if before is None:
            del os.environ[RUN_VARIABLE]
        else:
            os.environ[RUN_VARIABLE] = before

"""Recording, for users: `record`, `install`, `uninstall`, and the way in from the environment.

Lives here: the one recording of this process and what surrounds it (exit, fork, uncaught
exceptions).  Not here: what is recorded (`probes`, `recorder`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from torchreel.errors import UsageError
from torchreel.recorder import attach
from torchreel.recorder.attach import Attachment
from torchreel.recorder.control import KillSwitch, off_file
from torchreel.recorder.failing_open import announce, fail_open, losses
from torchreel.recorder.recorder import Recorder, RecordingOptions
from torchreel.recorder.settings import Settings
from torchreel.recorder.skipped_frames import hide_recorder

MODES = ("full", "flight")
MODE_VARIABLE = "TORCHREEL"
RUN_VARIABLE = "TORCHREEL_RUN"


class Session:
    """A recorder with everything that is attached for it."""

    def __init__(self, options: RecordingOptions) -> None:
        from torchreel.recorder.probes import PROBES, run, trace
        from torchreel.recorder.watchdog import Watchdog
        from torchreel.store import recording  # noqa: F401  (else the writer's thread does)
        from torchreel.store.files import direct, locks  # noqa: F401

        self.recorder = Recorder(options)
        self._run = run
        self._trace = trace.TraceHandler()
        flight = options.mode == "flight"
        # With a handler, torch prints every graph for its trace: 3 % of a compile.
        self._attachment = Attachment(
            [probe for probe in PROBES if probe.flight or not flight],
            lambda module: None if flight else self._trace.attach(),
        )
        self._watchdog = Watchdog(self.recorder, options.settings.compile_timeout)
        self._switch = KillSwitch(off_file(self.recorder.event_log.target), self._switch_off)
        self._previous = threading.excepthook
        self._hook = self._thread_excepthook

    def start(self) -> None:
        """Begin to record."""
        self.recorder.event_log.switch = self._switch
        with fail_open("signal"):
            self._switch.listen(self.recorder.options.settings.off_signal)
        if self._switch.look(now=True):
            return
        hide_recorder()
        attach.activate(self.recorder)
        self._attachment.attach()
        self._watchdog.start()
        threading.excepthook = self._hook
        atexit.register(self.stop)
        workers = sys.modules.get("multiprocessing.process")
        if workers is not None and workers.parent_process() is not None:
            _end_with_worker(self)  # such a process imported torch itself, and may end by os._exit

    def stop(self) -> None:
        """Take everything away again and close the recording; does nothing the second time."""
        global _session
        if _session is not self:
            return
        _session = None
        atexit.unregister(self.stop)
        steps: tuple[Callable[[], None], ...] = (
            self._note_last, self._attachment.detach, self._trace.detach, self._watchdog.stop,
            self._give_hook_back, self._switch.stop_listening, partial(attach.activate, None),
            self.recorder.close,
        )  # fmt: skip
        # Each one is taken, also when an alarm of the program's comes in one of them.
        with ExitStack() as rest:
            for step in reversed(steps):
                rest.callback(_undo, step)

    def _give_hook_back(self) -> None:
        if threading.excepthook is self._hook:
            threading.excepthook = self._previous

    def _switch_off(self, reason: str) -> None:
        """Record nothing from now on: close what is open and write out the event log."""
        attach.activate(None)
        self._trace.detach()  # for whom torch goes on to print every graph
        self._watchdog.stop()
        if self.recorder.recording_id is not None:
            losses.add("switched off", "recorder", reason)

    def forked(self) -> None:
        """Begin a recording for the child of a fork, which also ends where atexit does not run."""
        self.recorder.after_fork()
        self.recorder.event_log.switch = self._switch
        if self._switch.thrown:
            return
        self._watchdog.start()
        # Processes of multiprocessing end by os._exit, after the finalizers that were registered
        # once the process had begun.
        workers = sys.modules.get("multiprocessing.util")
        if workers is not None:
            workers.register_after_fork(self, _end_with_worker)

    def note(self, error: BaseException | None) -> None:
        """Note an exception that nobody caught: compiled code may have raised it."""
        if _session is self:
            self._note(error)

    def _note(self, error: BaseException | None) -> None:
        with fail_open("uncaught"):
            if isinstance(error, Exception):
                self._run.note_uncaught(self.recorder, error)

    def _note_last(self) -> None:
        """Note the exception that ended the program, which Python keeps.

        Not by a `sys.excepthook`: whether it is Python's own is what `code.InteractiveConsole`
        looks at. One that a console or pytest shows has come to less than the first frame.
        """
        error = getattr(sys, "last_value", None)
        trace = getattr(error, "__traceback__", None)
        if trace is not None and trace.tb_frame.f_back is None:
            self._note(error)

    def _thread_excepthook(self, args: threading.ExceptHookArgs) -> None:
        self.note(args.exc_value)
        self._previous(args)


def _undo(step: Callable[[], None]) -> None:
    """Take a step, and once more what an alarm ended, which comes once."""
    try:
        with fail_open("uninstall"):
            step()
    except BaseException:
        with fail_open("uninstall"):
            step()
        raise


_session: Session | None = None


def install(
    target: str | Path | None = None,
    mode: str = "full",
    compile_timeout: float | None = None,
    *,
    settings: Settings | None = None,
    kind: str = "program",
    replay_of: int | None = None,
    entry: str | None = None,
) -> Recorder:
    """Record every compile of this process from now on into the store at `target`.

    `target` is a path, in which `{rank}` and `{pid}` are filled in, or a SQLAlchemy URL (default:
    `torchreel.db` in the working directory).  `mode` is 'full', or 'flight', which keeps only what
    failed.  After `compile_timeout` seconds a compile counts as hung, and the program goes on; more
    can be set with `settings`.  Returns the recorder; one that is installed already is left as it
    is and returned, and the log says so.  A store that can't be used is no error here: nothing is
    recorded, and the log says why.  Raises UsageError for a mode that does not exist.
    """
    settings = settings or Settings()
    if compile_timeout is not None:
        settings = replace(settings, compile_timeout=compile_timeout)
    options = RecordingOptions(
        target=_absolute(target),
        mode=_checked(mode),
        settings=settings,
        run=os.environ.get(RUN_VARIABLE) or uuid.uuid4().hex[:12],
        kind=kind,
        replay_of=replay_of,
        entry=entry,
    )
    return _start(options)


def install_from_environment(setting: str) -> Recorder:
    """Return the options in `TORCHREEL=<mode>:<target>`; called while torch is being imported."""
    mode, _, target = setting.partition(":")
    options = RecordingOptions(
        target=_absolute(target or None),
        mode=_checked(mode),
        settings=Settings.from_environment(),
        run=os.environ.get(RUN_VARIABLE) or uuid.uuid4().hex[:12],
        lazy=True,
    )
    return _start(options)


def uninstall() -> None:
    """Stop recording: every function of torch is as it was, and the recording is closed."""
    if _session is not None:
        _session.stop()


@contextmanager
def record(
    target: str | Path | None = None,
    mode: str = "full",
    compile_timeout: float | None = None,
    *,
    settings: Settings | None = None,
    kind: str = "program",
    replay_of: int | None = None,
    entry: str | None = None,
) -> Iterator[Recorder]:
    """Record the compiles of a block, as `install` does.

    Inside a process that is being recorded already, that recording goes on, and this one does
    nothing but say so.
    """
    if _session is not None:
        _say_which(_absolute(target))
        yield _session.recorder
        return
    recorder = install(
        target, mode, compile_timeout,
        settings=settings, kind=kind, replay_of=replay_of, entry=entry,
    )  # fmt: skip
    session = _session
    try:
        yield recorder
    except Exception as error:
        if session is not None:
            session.note(error)
        raise
    finally:
        if session is not None:
            session.stop()


def note_uncaught(error: Exception) -> None:
    """Note an exception that the program's own code would not have caught, as compiled code raises.

    For what runs a program under the recorder and ends its exceptions itself.
    """
    if _session is not None:
        _session.note(error)


def _start(options: RecordingOptions) -> Recorder:
    global _session
    if _session is None:
        _session = Session(options)
        _session.start()
    else:
        _say_which(options.target)
    return _session.recorder


def _say_which(target: str) -> None:
    """Say that a second recorder in one process does nothing."""
    if _session is not None:
        announce(
            f"torchreel: this process is recorded into {_session.recorder.options.target} already: "
            f"nothing goes into {target} besides."
        )


def _checked(mode: str) -> str:
    if mode not in MODES:
        raise UsageError(
            f"There is no mode {mode!r} of recording: use {' or '.join(MODES)} (in TORCHREEL with "
            f"a store: {MODES[0]}:STORE)."
        )
    return mode


def _absolute(target: str | Path | None) -> str:
    """Return a path that stays the same when the program changes its working directory."""
    from torchreel.store.addressing import default_store
    from torchreel.store.passwords import hidden

    text = str(target) if target is not None else default_store()
    return hidden(text) if "://" in text else os.path.abspath(text)


def _before_fork() -> None:
    if _session is not None:
        _session.recorder.before_fork()


def _after_fork() -> None:
    if _session is not None:
        with fail_open("fork"):
            _session.forked()


def _end_with_worker(session: Session) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, session.stop, exitpriority=0)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)

"""The one broad `except` of the project: no exception of ours reaches the recorded program.

Lives here: `fail_open`, and the count of what was lost because of it.  Not here: writing those
counts down (`event_log.log`).  Every hook body of the recorder runs inside `fail_open`; the
function that a hook stands in front of is called outside of it.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import opcode
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

log = logging.getLogger("torchreel")

_MESSAGE_LIMIT = 500
"""Characters of a message that are kept: enough to tell errors apart, whatever they quote."""

Fault = Callable[[str], None]
inject: Fault | None = None
"""A test's hook: called with the place at the start of every guarded hook, and may raise."""


REPORT_VARIABLE = "TORCHREEL_REPORT"
"""The file from which `torchreel record` reads its messages when the program has ended."""

_late: list[str] | None = None
"""Messages to print at the end of the process, unless somebody else does."""


def announce(message: str) -> None:
    """Say a line: by `torchreel record` at its end, at the end of the process, or now.

    Now, in the log, where the program itself called for a recording: it may want to know.
    """
    report = os.environ.get(REPORT_VARIABLE)
    if report and _appended(report, message):
        return
    if _late is not None:
        _late.append(message)
    else:
        log.warning("%s", message)


def _appended(report: str, message: str) -> bool:
    line = " ".join(message.split()) + "\n"
    with contextlib.suppress(Exception):  # a hook of the program's may raise anything
        handle = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.write(handle, line.encode("utf-8", "backslashreplace")) > 0
        finally:
            os.close(handle)
    return False


def say_at_the_end() -> None:
    """Keep what there is to say until the process ends: the program prints in the meantime."""
    global _late
    if _late is None:
        _late = []
        atexit.register(_say)


def _say() -> None:
    while _late:
        log.warning("%s", _late.pop(0))


class Loss:
    """A loss at one place for one reason: its count, and the first message."""

    def __init__(self, count: int, message: str) -> None:
        self.count, self.message = count, message


class Losses:
    """Counts losses by (reason, place)."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Loss] = {}
        # Reentrant: a signal handler of the program may compile while this is held.
        self._lock = threading.RLock()
        self.version = 0

    def add(
        self, reason: str, place: str, message: str = "", count: int = 1, *, follows: bool = False
    ) -> None:
        """Count a loss; the first of its kind is logged, unless it `follows` from one that was."""
        with self._lock:
            self.version += 1
            loss = self._by_key.get((reason, place))
            if loss is not None:
                loss.count += count
                return
            self._by_key[reason, place] = Loss(count, message[:_MESSAGE_LIMIT])
        if not follows:
            why = f"{reason}: {message[:200]}" if message else reason
            announce(f"torchreel lost something at {place} ({why})")

    def snapshot(self) -> list[tuple[str, str, int, str]]:
        """Return every loss as (reason, place, count, message)."""
        with self._lock:
            return [(*key, loss.count, loss.message) for key, loss in self._by_key.items()]

    def reset(self) -> None:
        """Forget everything: a new recording begins (also after a fork: hence a new lock)."""
        self._lock = threading.RLock()
        self._by_key = {}
        self.version += 1
        if _late is not None:
            _late.clear()


losses = Losses()


def _no_dynamo(callback: object) -> object:
    return None


set_eval_frame: Callable[[Any], Any] = _no_dynamo
"""Dynamo's: sets what is shown each frame that begins in this thread, and returns what it was.

`skipped_frames` puts it here."""


_PASSING = (KeyboardInterrupt, SystemExit, GeneratorExit)


class fail_open:
    """Swallow any `Exception` that the body raises; count and log it under `place`.

    Dynamo, which may look at every frame here, does not see what the body calls.
    KeyboardInterrupt and SystemExit are the program's own and pass, and so does what a signal
    handler of the program raised meanwhile (an alarm's time limit), or another thread sent.
    `runs_program` says that the body may call methods of the program's objects, which raise what
    they like: an exception that is no `Exception` is swallowed too. `kind`
    and `message` say afterwards what was raised, if anything; `quiet` leaves the counting to the
    caller.
    """

    __slots__ = ("_callback", "_swallowed", "kind", "message", "place", "quiet")

    def __init__(self, place: str, *, quiet: bool = False, runs_program: bool = False) -> None:
        self.place = place
        self.quiet = quiet
        self._swallowed = BaseException if runs_program else Exception
        self.kind: type[BaseException] | None = None
        self.message = ""

    def __enter__(self) -> Self:
        self._callback = set_eval_frame(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            if not isinstance(error, self._swallowed) or isinstance(error, _PASSING):
                return False
            if _is_of_a_handler(error) or _was_sent(error):
                return False
            return self._swallow(error)
        finally:
            set_eval_frame(self._callback)

    def _swallow(self, error: BaseException) -> bool:
        self.kind = type(error)
        # Logging itself may be broken, and a program's exception may refuse to be printed.
        with contextlib.suppress(Exception):
            self.message = str(error)
            if not self.quiet:
                losses.add(type(error).__name__, self.place, self.message)
        return True


def _is_of_a_handler(error: BaseException) -> bool:
    """Return True if a signal handler raised it: Python runs one wherever the main thread just is.

    Seen by how a handler is called, since it may have given its signal back before it raised.
    """
    found = False
    with contextlib.suppress(Exception):  # without memory it is ours
        frames = traceback.walk_tb(error.__traceback__)
        found = any(_is_a_handlers(frame) for frame, _ in frames)
    return found


def _is_a_handlers(frame: FrameType) -> bool:
    """Return True if a frame was given the number of a signal and, next to it, the frame it
    came from.
    """
    given: list[object] = []
    for value in frame.f_locals.values():
        given += value if type(value) is tuple else (value,)  # *args, of a decorated one
    return any(
        before is frame.f_back and type(number) is int and 0 < number < signal.NSIG
        for number, before in itertools.pairwise(given)
        if before is not None
    )


def _was_sent(error: BaseException) -> bool:
    """Return True if another thread sent it (`PyThreadState_SetAsyncExc`).

    Then it has no arguments, and no code of the package that its class is from has run. For a class
    of Python's own, it came where an instruction raises nothing else: what came at a call can't be
    told from what the call raised.
    """
    found = False
    with contextlib.suppress(Exception):  # a class may have `args` of its own
        found = not error.args and error.__traceback__ is not None and _is_from_nowhere(error)
    return found


def _is_from_nowhere(error: BaseException) -> bool:
    frames = list(_walk(error.__traceback__))
    last, place = frames[-1]
    came_at = last.f_code.co_code[place]
    home = _package(type(error).__module__)
    if home in sys.stdlib_module_names:
        return came_at in _INTERRUPTED
    packages = {_package(frame.f_globals.get("__name__")) for frame, _ in frames}
    return came_at not in _RAISE and home not in packages | _RAISE_NATIVELY


def _walk(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield each frame, from the outermost on, with the place of its instruction."""
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


_RAISE_NATIVELY = {"torch", "sqlalchemy", "torchreel"}
_INTERRUPTED = {opcode.opmap["RESUME"], opcode.opmap["JUMP_BACKWARD"]}
"""Instructions of Python's that raise nothing themselves, at which an exception may arrive."""
_RAISE = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}


def _package(module: object) -> str:
    return str(module).partition(".")[0]


def check(place: str) -> None:
    """Let a test make a hook raise; called first in every guarded hook body."""
    if inject is not None:
        inject(place)

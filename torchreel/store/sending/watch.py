"""Pushes several stores, once or until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from torchreel.errors import MissingStore, StoreError, UnreadableSource, UsageError
from torchreel.store.database import APPENDING, Store
from torchreel.store.sending.push import KindsOf, PushReport, no_kinds, open_settled, push

_LONGEST_WAIT = 300.0
"""Seconds between two tries to reach a server that is not there, at most, or to send what it
refused."""

Stamp = tuple[tuple[int, int], ...]
"""The times at which the files of a store were written last, and their sizes."""


class _Done(NamedTuple):
    """The state of a store when it was pushed."""

    stamp: Stamp
    again: float | None
    """The monotonic time at which it is pushed again as it is: something was refused there."""

    def stays(self, *, last: bool) -> bool:
        """Return True if the store need not be pushed again now, unless its files have changed."""
        return self.again is None or not (last or time.monotonic() >= self.again)


class PushWatcher(Protocol):
    """Gets told what becomes of each store."""

    def sent(self, source: str, number: int, new: int) -> None:
        """Note that a recording was sent, and has that number in the other store."""

    def pushed(self, source: str, report: PushReport) -> None:
        """Note that a store was pushed."""

    def refused(self, source: str, error: StoreError) -> None:
        """Note that a store can't be read at all."""

    def waiting(self, error: StoreError) -> None:
        """Note that the other store can't be written to; it is tried again."""


def push_all(
    sources: Sequence[str], to: str, reporter: PushWatcher, kinds_of: KindsOf = no_kinds
) -> None:
    """Push each store.  Raises StoreError where the other one can't be written to."""
    with _opened(sources, to) as target:
        for source in sources:
            _push(source, target, reporter, kinds_of)


def push_until_stopped(
    sources: Sequence[str],
    to: str,
    every: float,
    reporter: PushWatcher,
    kinds_of: KindsOf = no_kinds,
) -> None:
    """Push each store again and again, until SIGINT or SIGTERM, and then once more.

    A store that is not there yet, or that has not changed, costs a look at its files.  One of which
    the other store refused something is pushed again after a pause.
    """
    stop = threading.Event()
    done: dict[str, _Done] = {}
    wait = every
    with _signals(stop):
        while True:
            last = stop.is_set()
            try:
                _push_changed(sources, to, reporter, done, kinds_of, last=last)
                wait = every
            except StoreError as error:
                if last:
                    raise
                reporter.waiting(error)
                wait = min(2 * wait, max(every, _LONGEST_WAIT))
            if last:
                return
            stop.wait(wait)


def _push_changed(
    sources: Sequence[str],
    to: str,
    reporter: PushWatcher,
    done: dict[str, _Done],
    kinds_of: KindsOf,
    *,
    last: bool,
) -> None:
    stamps = {source: _stamp(source) for source in sources}
    known = {source: each.stamp for source, each in done.items() if each.stays(last=last)}
    changed = [source for source in sources if stamps[source] != known.get(source)]
    if not changed:
        return
    with _opened(sources, to) as target:
        for source in changed:
            report = _push(source, target, reporter, kinds_of, is_awaited=True)
            if report is not None and not report.running:
                again = time.monotonic() + _LONGEST_WAIT if report.is_refused_there else None
                done[source] = _Done(stamps[source], again)


def _push(
    source: str,
    target: Store,
    reporter: PushWatcher,
    kinds_of: KindsOf,
    *,
    is_awaited: bool = False,
) -> PushReport | None:
    try:
        opened = open_settled(source)
    except StoreError as error:
        if not (is_awaited and isinstance(error, MissingStore)):
            reporter.refused(source, error)
        return None
    with opened:
        try:
            report = push(opened, target, partial(reporter.sent, source), kinds_of)
        except UnreadableSource as error:  # any other is the target's
            reporter.refused(source, error)
            return None
    reporter.pushed(source, report)
    return report


@contextmanager
def _opened(sources: Sequence[str], to: str) -> Iterator[Store]:
    """Give the store to push to; a file is made where there is none."""
    if any(_is_same(source, to) for source in sources):
        raise UsageError(f"{to} can't be pushed into itself.")
    with Store.open(to, write=True, create="://" not in to, rights=APPENDING) as target:
        yield target


def _is_same(source: str, to: str) -> bool:
    if "://" in source or "://" in to:
        return source == to
    return os.path.exists(to) and os.path.exists(source) and os.path.samefile(source, to)


def _stamp(source: str) -> Stamp:
    """Return the stamp of a store; of a server's, one that is always new."""
    if "://" in source:
        return ((time.time_ns(), 0),)
    found = []
    for name in (source, f"{source}-wal"):
        try:
            status = Path(name).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except (OSError, ValueError):
            found.append((0, 0))
    return tuple(found)


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end it in order; another one ends it as ever."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

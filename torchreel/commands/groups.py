"""Carry out `torchreel minify --group`: reduce the groups of a store, one after the other or on
Ray.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from torchreel.analysis.triage.summaries import GroupSummary, Triage, triage
from torchreel.commands.rendering import streams
from torchreel.commands.stores import writable_copy, writable_store
from torchreel.commands.views import minify as view_of_one
from torchreel.commands.views import minify_groups as view
from torchreel.errors import LockedStore, StoreError, UsageError
from torchreel.escaping.shell import command
from torchreel.minifier.groups import on_ray
from torchreel.minifier.groups.jobs import GroupJob, GroupResult, reduce_group
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.files import FORMATS, refuse_unwritable, write_files
from torchreel.store import Address, Store, parse, queries

ALL = "ALL"
_LEAST = 4
"""Characters of a group's id or a signature that are enough to name it."""
_OTHERS = 2
"""Failures of a group that are tried besides the one with the smallest graph."""


@dataclass(frozen=True)
class GroupOptions:
    """The groups to reduce, where, and where to write."""

    wanted: str
    """`ALL`, or the beginning of a group's id or of a signature."""
    output: Path
    force: bool
    checks: int
    on: str | None
    """'ray', or None for this process."""
    cluster: str | None


@dataclass(frozen=True)
class _Task:
    """A group with what is to be done of it, and the folder of its files."""

    group: GroupSummary
    job: GroupJob
    directory: Path

    def is_done(self, force: bool) -> bool:
        """Return True if nothing is left to do."""
        has_files = (self.directory / FORMATS["repro"]).exists()
        return self.group.is_minimal and has_files and not force


def minify_groups(where: Address, options: GroupOptions, each: MinifyOptions) -> int:
    """Reduce the groups of a store, export them, and return the exit status."""
    if where.recording is not None:
        raise UsageError(f"{where} is a part of a store: --group takes the store alone.")
    if options.on not in (None, "ray"):
        raise UsageError(f"--on takes 'ray', not {options.on!r:.40}.")
    if options.cluster is not None and options.on is None:
        raise UsageError("--address is that of a Ray cluster: it needs --on ray.")
    refuse_unwritable(options.output)
    if options.on is not None:
        _require_cluster(where.store, options)
    found = triage([where.store])
    chosen = _chosen(found, options.wanted)
    tasks = [_task(group, options, each) for group in chosen]
    ended: list[tuple[GroupSummary, GroupResult, Path]] = []
    waiting = [task for task in tasks if not task.is_done(options.force)]
    for task in tasks:
        if task not in waiting:
            ended.append((task.group, _done_before(task), task.directory))
    progress = view.GroupProgress(len(tasks), len(tasks) - len(waiting))
    with _noting_interrupts() as is_interrupted:
        try:
            for task, result in _results(where, waiting, options, progress, is_interrupted):
                if result.texts:
                    write_files(task.directory, result.texts)
                progress.ended(task.group, result, task.directory)
                ended.append((task.group, result, task.directory))
        except KeyboardInterrupt:
            is_interrupted.set()
    ended.sort(key=lambda each: chosen.index(each[0]))
    left = [task.group for task in waiting if task.group not in [group for group, *_ in ended]]
    status = view.report(where.store, ended, left, is_interrupted=is_interrupted.is_set())
    return status or found.exit_status


def _require_cluster(target: str, options: GroupOptions) -> None:
    """Raise UsageError, or LockedStore, where no task could work on the store."""
    on_ray.require_ray()
    if options.cluster is not None and "://" not in target:
        raise UsageError(
            f"{target} is a file of this machine, which those of a cluster don't reach: push it "
            f"to a server ('{command('torchreel', 'push', target, '--to', 'URL')}'), and name that."
        )
    with writable_store(parse(target)) as store:
        if not store.writable:
            raise LockedStore(f"{target} can't be written to, and tasks keep their verdicts in it.")


def _chosen(found: Triage, wanted: str) -> Sequence[GroupSummary]:
    """Return the groups that were asked for.  Raises UsageError where that is none, or unclear."""
    if wanted == ALL:
        return found.groups
    chosen = [each for each in found.groups if len(wanted) >= _LEAST and _is_named(each, wanted)]
    if len(chosen) == 1:
        return chosen
    which = f"{len(chosen)} groups" if chosen else "no group"
    raise UsageError(
        f"--group takes {ALL}, or the first {_LEAST} characters or more of a group's id or of a "
        f"signature: {wanted!r:.40} names {which}. 'torchreel triage' lists them."
    )


def _is_named(group: GroupSummary, wanted: str) -> bool:
    """Return True for the beginning of an id or of a signature.

    An id of another list may be longer: there, another bug had an equal case.
    """
    names = (group.id, *group.signatures)
    return wanted.startswith(f"{group.id}-") or any(name.startswith(wanted) for name in names)


def _task(group: GroupSummary, options: GroupOptions, each: MinifyOptions) -> _Task:
    oldest, newest = group.addresses[0], group.addresses[-1]
    others = [name for name in (oldest, newest) if name != group.smallest][:_OTHERS]
    addresses = [group.smallest] if group.is_reduced else [group.smallest, *dict.fromkeys(others)]
    places = tuple(address.rpartition("#")[2] for address in addresses)
    job = GroupJob(places, each, options.checks, group.is_minimal)
    # The place names it, and the signature tells it from one of another store.
    name = f"{places[0].replace('/', '-')}-{group.smallest_signature[:8]}"
    return _Task(group, job, options.output / name)


def _done_before(task: _Task) -> GroupResult:
    size = task.group.smallest_size or 0
    return GroupResult(
        "known", task.job.places[0], size, size, task.group.smallest_unit, is_verified=True
    )


def _results(
    where: Address,
    tasks: Sequence[_Task],
    options: GroupOptions,
    progress: view.GroupProgress,
    is_interrupted: threading.Event,
) -> Iterator[tuple[_Task, GroupResult]]:
    """Yield the result of each task, as they come, until an interrupt."""
    if options.on is None:
        yield from _results_here(where, tasks, options, progress, is_interrupted)
        return
    began = time.time_ns()

    def tick(left: int) -> None:
        progress.tick(left, _runs_at_work(where.store, began))

    jobs = [task.job for task in tasks]
    target = where.store if "://" in where.store else str(Path(where.store).absolute())
    for number, result in on_ray.results(target, jobs, options.cluster, tick) if jobs else ():
        yield tasks[number], result


def _runs_at_work(target: str, began_ns: int) -> int:
    """Return the runs of the reductions that began since then and go on; 0 if the store can't say.

    It is asked for the progress alone: no error of it ends the work.
    """
    with suppress(StoreError), Store.open(target) as store:
        return queries.runs_at_work(store, began_ns)
    return 0


def _results_here(
    where: Address,
    tasks: Sequence[_Task],
    options: GroupOptions,
    progress: view.GroupProgress,
    is_interrupted: threading.Event,
) -> Iterator[tuple[_Task, GroupResult]]:
    for task in tasks:
        progress.begin(task.group)
        place = parse(f"{where.store}#{task.job.places[0]}")
        store, there = writable_copy(writable_store(place), options.output, place)
        job = task.job
        if there.recording != place.recording:  # a copy of this one recording
            job = replace(job, places=(str(there).rpartition("#")[2],))
        with store, view_of_one.watched(job.options.limits) as listener:
            result = reduce_group(store, job, listener, streams.step)
        yield task, result
        if is_interrupted.is_set() or result.state == "interrupted":
            is_interrupted.set()
            return


@contextmanager
def _noting_interrupts() -> Iterator[threading.Event]:
    """Note Ctrl-C, which is raised as ever: a search takes it as its end, and says so to nobody
    else.
    """
    seen = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        seen.set()
        signal.default_int_handler(number, frame)

    if before is not signal.default_int_handler:  # ignored, or somebody else's
        yield seen
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)

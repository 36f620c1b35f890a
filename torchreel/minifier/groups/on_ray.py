"""Jobs on the machines of a Ray cluster, or in processes of this one.

A task does what is done here without Ray, with the same function. It reads and writes the store
itself: its verdicts are there as they come, and one whose worker dies is started again by Ray and
finds them. A stop is Ray's cancellation, which a search takes as Ctrl-C.

ray is imported when a cluster is asked for, and not before: it is an extra.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from socket import create_connection, gethostname
from typing import Any

import torchreel
from torchreel.errors import MinifyError, TorchreelError, UsageError
from torchreel.minifier.groups.jobs import GroupJob, GroupResult, reduce_group
from torchreel.minifier.options import usable_cores
from torchreel.store import Store
from torchreel.store.passwords import full, hidden
from torchreel.torch_compat.versions import releases

_RETRIES = 3
"""Times that a task is started again whose worker died."""
_EVERY = 5.0
"""Seconds between two looks at how far the tasks are."""
_TO_END = 20.0
"""Seconds that the tasks have, once they are to stop, to write down how far they came."""
_TO_ANSWER = 10.0
"""Seconds that a cluster has to take a connection."""
_OBJECTS = 100 << 20
"""Bytes of shared memory for what is sent: a few small texts."""

Versions = tuple[str, str]
"""Of torchreel and of torch."""
Tick = Callable[[int], None]
"""Is called now and then, with the number of tasks that have not ended."""


def require_ray() -> Any:
    """Return the module.  Raises UsageError where it is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--on ray needs the package {error.name}: pip install 'torchreel[ray]' brings it."
        ) from error
    return ray


def results(
    target: str, jobs: Sequence[GroupJob], address: str | None, tick: Tick
) -> Iterator[tuple[int, GroupResult]]:
    """Yield the result of each job after its number, as they come.

    `target` is the path or URL of a store that every machine of the cluster reaches. Without an
    `address`, the cluster is this machine, for as long as this takes.
    """
    ray = require_ray()
    with _cluster(ray, address):
        remote = ray.remote(_task)
        cores = cores_of_a_task(ray.nodes())
        waiting: dict[Any, int] = {}
        for number, job in enumerate(jobs):
            wanted = {"num_cpus": min(job.options.jobs, cores), "max_retries": _RETRIES}
            waiting[remote.options(**wanted).remote(full(target), job, _versions())] = number
        try:
            while waiting:
                ready, _ = ray.wait(list(waiting), timeout=_EVERY)
                for task in ready:
                    yield waiting[task], _result(ray, task, jobs[waiting[task]])
                    del waiting[task]
                tick(len(waiting))
        finally:
            _cancel(ray, list(waiting))


def cores_of_a_task(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return the most cores that a task can ask for: those of the largest machine, by `ray.nodes`.

    One that asks for more waits forever.  Raises MinifyError where no machine has a core for tasks.
    """
    alive = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    most = max((int(resources.get("CPU", 0)) for resources in alive), default=0)
    if most == 0:
        raise MinifyError(
            f"No task can run on the cluster: of its {len(alive)} machines, none has a CPU for Ray."
        )
    return most


def _task(target: str, job: GroupJob, versions: Versions) -> GroupResult:
    """Carry out a job; runs in a worker of the cluster."""
    if _versions() != versions:
        theirs, ours = (
            f"torchreel {one} and torch {other}" for one, other in (_versions(), versions)
        )
        why = f"{gethostname()} has {theirs}, and the command ran with {ours}."
        return GroupResult("refused", job.places[0], detail=why)
    try:
        with Store.open(hidden(target), write=True) as store:
            return reduce_group(store, job)
    except TorchreelError as error:
        return GroupResult("refused", job.places[0], detail=str(error))


def _versions() -> Versions:
    return torchreel.__version__, releases.installed().version


def _result(ray: Any, task: Any, job: GroupJob) -> GroupResult:
    """Return the result of a task that has ended, in whatever way."""
    try:
        found: GroupResult = ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return GroupResult("interrupted", job.places[0])
    except ray.exceptions.RayTaskError as error:  # of one task: the others go on
        said = str(error.cause).strip().partition("\n")[0]
        why = f"Its task ended with {type(error.cause).__name__}: {said}"
        return GroupResult("refused", job.places[0], detail=why)
    except ray.exceptions.RayError as error:
        said = str(error).strip().partition("\n")[0]
        why = f"Its worker died {_RETRIES + 1} times: {said}"
        return GroupResult("refused", job.places[0], detail=why)
    return found


def _cancel(ray: Any, tasks: Sequence[Any]) -> None:
    """End tasks as Ctrl-C would, and give them time to say how far they came."""
    for task in tasks:
        ray.cancel(task, force=False)
    if tasks:
        with suppress(ray.exceptions.RayError):
            ray.wait(list(tasks), num_returns=len(tasks), timeout=_TO_END)


def _require_answer(address: str | None) -> None:
    """Raise MinifyError where nothing answers at HOST:PORT: Ray itself tries for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdecimal():  # 'auto', or with a scheme
        return
    try:
        create_connection((host.strip("[]"), int(port)), _TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise MinifyError(f"Ray at {address} can't be used: nothing answers ({error}).") from error


@contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine for the length of a `with`.

    Raises MinifyError where there is none.
    """
    _require_answer(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # which sends them somewhere else
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    folder = tempfile.mkdtemp(prefix="torchreel-ray-")
    own = {
        "num_cpus": usable_cores(),
        "include_dashboard": False,
        "object_store_memory": _OBJECTS,
        "_temp_dir": folder,
    }
    try:
        try:
            ray.init(address or "local", **quiet, **({} if address else own))
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            said = str(error).strip().partition("\n")[0]
            raise MinifyError(
                f"Ray at {address or 'this machine'} can't be used: {said}"
            ) from error
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)

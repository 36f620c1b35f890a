"""The end of a compile in a recorded process: processor time, and waits of its thread (a minute).

    python -m benchmarks.blocking [COMPILES]

Compiles small graphs with aot_eager, recorded in `full` and in `flight` mode. Prints, of what the
recorder does in the compiling thread when a compile has ended and when a checkpoint is committed,
the processor time and how often the kernel put the thread to sleep. Neither depends on what else
the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FIRST = 2  # compiles that load modules


def main() -> None:
    """Run a program in both modes, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiles", nargs="?", type=int, default=20)
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        _compile(options.compiles)
        return
    print("| mode, step | times | microseconds of the thread, median, most | waits |")
    print("|---|---|---|---|")
    for mode in ("full", "flight"):
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "run.db")
            settings = {"TORCHREEL": f"{mode}:{store}"}
            command = [
                sys.executable,
                "-m",
                "benchmarks.blocking",
                "--child",
                str(options.compiles),
            ]
            done = subprocess.run(
                command, env={**os.environ, **settings}, stdout=subprocess.PIPE, check=True
            )
        for name, calls in json.loads(done.stdout).items():
            times = [spent / 1000 for spent, _ in calls]
            waits = sum(count for _, count in calls)
            figures = f"{statistics.median(times):.0f}, {max(times):.0f}"
            print(f"| `{mode}`, {name} | {len(calls)} | {figures} | {waits} |", flush=True)


def _compile(compiles: int) -> None:
    """Compile some graphs, with a clock in front of the recorder's steps."""
    import torch

    from torchreel.recorder.event_log.log import EventLog
    from torchreel.recorder.recorder import Recorder

    found: dict[str, list[tuple[int, int]]] = {"end": [], "commit": []}

    def measured(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began, slept = time.thread_time_ns(), _sleeps()
            result = function(*args, **kwargs)
            found[name].append((time.thread_time_ns() - began, _sleeps() - slept))
            return result

        return call

    finish, hurry = Recorder.finish, EventLog.hurry

    def ended(recorder: Recorder, *args: Any, **kwargs: Any) -> None:
        finish(recorder, *args, **kwargs)
        hurry(recorder.event_log)

    Recorder.finish = measured("end", ended)  # type: ignore[method-assign]
    EventLog.commit = measured("commit", EventLog.commit)  # type: ignore[method-assign]
    for number in range(compiles + _FIRST):
        torch._dynamo.reset()
        if number == _FIRST:
            for calls in found.values():
                calls.clear()
        torch.compile(lambda x: (x.sin() + x.cos()).relu(), backend="aot_eager")(torch.ones(3))
    print(json.dumps(found))


def _sleeps() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


if __name__ == "__main__":
    main()

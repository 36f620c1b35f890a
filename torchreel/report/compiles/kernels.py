"""The calls of kernels in generated code, and the graph nodes that each computes.

Lives here: from the events of Inductor and the generated code to `KernelCall`s.  Inductor notes a
kernel when it generates it (`inductor.kernel`) and a library's kernel when it generates its call
(`inductor.extern`), in the order of the calls: the n-th event of a name is its n-th call.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable

from torchreel.analysis.event_log import CompileEventLog
from torchreel.events.inductor import ExternKernel, Kernel
from torchreel.report.document import KernelCall
from torchreel.store.blobs.pages import TICK
from torchreel.store.records import Event

CODEGEN = "codegen"
_CALL = re.compile(r" +(?:\w[\w, ]{0,500} = )?(?P<name>[A-Za-z_][\w.]*?)(?:\.run)?\(", re.ASCII)
_SOURCE = re.compile(r"(?P<name>\w+) = async_compile\.\w+\(", re.ASCII)
_QUOTES = "'''"
_LONGEST_LINE = 2_000
"""Characters of a line that are looked at: a line of a stranger's store must not take minutes."""


def kernel_calls(log: CompileEventLog, partition: str, code: str) -> list[KernelCall]:
    """Return the kernels of a partition, in the order of their events."""
    found = [event for event in _events(log) if _partition(log, event) == partition]
    calls = _calls(code, {_name(event) for event in found})
    sources = _sources(code)
    return [_kernel(event, calls, sources) for event in found]


def _events(log: CompileEventLog) -> list[Event]:
    return log.of(Kernel.kind, ExternKernel.kind)


def _partition(log: CompileEventLog, event: Event) -> str | None:
    """Return the partition whose code was generated at an event."""
    open_then = [
        stage.partition
        for stage in log.stages
        if stage.stage == CODEGEN
        and stage.started_ns <= event.time_ns + TICK
        and (stage.ended_ns is None or event.time_ns <= stage.ended_ns + TICK)
    ]
    return open_then[-1] if open_then else None


def _name(event: Event) -> str:
    """Return the name that the generated code calls."""
    return str(event.fields.kernel) if isinstance(event.fields, ExternKernel) else event.name


def _kernel(
    event: Event, calls: dict[str, deque[int]], sources: dict[str, tuple[int, int]]
) -> KernelCall:
    name = _name(event)
    at = calls[name].popleft() if calls.get(name) else None
    match event.fields:
        case Kernel(backend=backend, origins=origins):
            return KernelCall(name, backend, list(origins), at, sources.get(name))
        case ExternKernel(origins=origins):
            return KernelCall(name, "extern", list(origins), at, sources.get(name))
    raise TypeError(f"no event of a kernel: {event.kind}")


def _calls(code: str, names: Iterable[str]) -> dict[str, deque[int]]:
    """Return the lines on which each of some names is called, in order."""
    wanted, found = set(names), defaultdict[str, deque[int]](deque)
    for number, line in enumerate(code.split("\n"), 1):
        match = _CALL.match(line[:_LONGEST_LINE])
        if match is not None and match["name"] in wanted:
            found[match["name"]].append(number)
    return found


def _sources(code: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of the source of each kernel.

    The source is a text in triple quotes; the last line is the one that ends the call after it.
    """
    found: dict[str, tuple[int, int]] = {}
    name, first, is_text_over = "", 0, False
    for number, line in enumerate(code.split("\n"), 1):
        if begins := _SOURCE.match(line[:_LONGEST_LINE]):
            name, first, is_text_over = begins["name"], number, False
        is_text_over = is_text_over or line.startswith(_QUOTES)
        if name and is_text_over and line.endswith(")"):
            found[name] = (first, number)
            name = ""
    return found

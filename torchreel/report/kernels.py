"""The calls of kernels in generated code, and the graph nodes that each computes.

Lives here: from the events of Inductor and the generated code to `KernelCall`s.  Inductor notes a
kernel when it generates it (`inductor.kernel`) and a library's kernel when it generates its call
(`inductor.extern`), in the order of the calls: the n-th event of a name is its n-th call.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable

from torchreel.report.document import KernelCall
from torchreel.store.history.tape import CompileLog, data_of, texts
from torchreel.store.records import Event

CODEGEN = "codegen"
_CALL = re.compile(
    r"^ +(?:[\w, ]+ = )?(?P<name>[A-Za-z_][\w.]*?)(?:\.run)?\(", re.ASCII | re.MULTILINE
)
_SOURCE = re.compile(
    r"^(?P<name>\w+) = async_compile\.\w+\(.*?^''',?.*?\)$", re.ASCII | re.MULTILINE | re.DOTALL
)


def kernel_calls(tape: CompileLog, partition: str, code: str) -> list[KernelCall]:
    """The kernels of a partition, in the order of their events."""
    found = [event for event in _events(tape) if _partition(tape, event) == partition]
    calls = _calls(code, {_name(event) for event in found})
    sources = _sources(code)
    return [_kernel(event, calls, sources) for event in found]


def _events(tape: CompileLog) -> list[Event]:
    return tape.of("inductor.kernel", "inductor.extern")


def _partition(tape: CompileLog, event: Event) -> str | None:
    """The partition whose code was generated at an event."""
    open_then = [
        stage.partition
        for stage in tape.stages
        if stage.stage == CODEGEN
        and stage.started_ns <= event.time_ns + _ROUNDED
        and (stage.ended_ns is None or event.time_ns <= stage.ended_ns + _ROUNDED)
    ]
    return open_then[-1] if open_then else None


_ROUNDED = 100_000
"""Nanoseconds to which the times of events in pages are rounded."""


def _name(event: Event) -> str:
    """Return what the generated code calls."""
    data = data_of(event)
    return str(data.get("kernel")) if event.kind == "inductor.extern" else event.name


def _kernel(
    event: Event, calls: dict[str, deque[int]], sources: dict[str, tuple[int, int]]
) -> KernelCall:
    name, data = _name(event), data_of(event)
    at = calls[name].popleft() if calls.get(name) else None
    backend = "extern" if event.kind == "inductor.extern" else str(data.get("backend"))
    return KernelCall(name, backend, texts(data.get("origins")), at, sources.get(name))


def _calls(code: str, names: Iterable[str]) -> dict[str, deque[int]]:
    """The lines on which each of some names is called, in order."""
    wanted, found = set(names), defaultdict[str, deque[int]](deque)
    lines = _LineNumbers(code)
    for match in _CALL.finditer(code):
        if match["name"] in wanted:
            found[match["name"]].append(lines.of(match.start("name")))
    return found


def _sources(code: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of the source of each kernel."""
    lines = _LineNumbers(code)
    return {
        match["name"]: (lines.of(match.start()), lines.of(match.end()))
        for match in _SOURCE.finditer(code)
    }


class _LineNumbers:
    """The number of the line at a place of a text; to be asked in order."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1

    def of(self, place: int) -> int:
        self._line += self._text.count("\n", self._at, place)
        self._at = place
        return self._line

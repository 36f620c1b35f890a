"""Measurements of a compile while it happens, for predicates.

Each quantity of `predicates.QUANTITIES` has a context here that takes it, except those that
`graph_runner` counts (`guards`, `recompiles`). Not here: what a number means.
"""

from __future__ import annotations

import cProfile
import logging
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from torchreel.minifier.oracle.child import code_generation
from torchreel.minifier.oracle.predicates import Measured
from torchreel.sandbox.processes import resident
from torchreel.torch_compat.patching import patched

Found = dict[str, Measured]


@contextmanager
def measured(names: Iterable[str], found: Found) -> Iterator[None]:
    """Write these quantities into `found`, as they were during a `with`."""
    takers = list(dict.fromkeys(_TAKERS[name] for name in sorted(names) if name in _TAKERS))
    with ExitStack() as stack:
        for take in takers:
            stack.enter_context(take(found))
        yield


@contextmanager
def _wall_clock(found: Found) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        found["compile_seconds"] = time.perf_counter() - began


@contextmanager
def _processor(found: Found) -> Iterator[None]:
    began = sum(os.times()[:4])
    try:
        yield
    finally:
        found["cpu_seconds"] = sum(os.times()[:4]) - began


@contextmanager
def _memory(found: Found) -> Iterator[None]:
    before = resident(os.getpid())
    try:
        yield
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found["memory"] = float(max(0, peak - before))


@contextmanager
def _calls(found: Found) -> Iterator[None]:
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        found["python_calls"] = float(sum(entry.callcount for entry in profile.getstats()))


@contextmanager
def _warnings(found: Found) -> Iterator[None]:
    texts: list[str] = []
    handle = logging.Logger.handle

    def kept(self: logging.Logger, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            texts.append(record.getMessage())
        handle(self, record)

    try:
        # Torch's loggers have handlers of their own and pass nothing on: there is no one to ask.
        with (
            patched(logging.Logger, "handle", kept),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            yield
    finally:
        texts = [str(item.message) for item in caught] + texts
        found["warnings"], found["warning"] = float(len(texts)), "\n".join(texts)


@contextmanager
def _code(found: Found) -> Iterator[None]:
    sources: list[str] = []
    with code_generation.code_kept(sources):
        try:
            yield
        finally:
            text = "\n".join(sources)
            found["code"], found["code_lines"] = text, float(len(text.splitlines()))


@contextmanager
def _kernels(found: Found) -> Iterator[None]:
    before = code_generation.kernel_count()
    try:
        yield
    finally:
        found["kernels"] = float(code_generation.kernel_count() - before)


_TAKERS: dict[str, Callable[[Found], AbstractContextManager[None]]] = {
    "compile_seconds": _wall_clock,
    "cpu_seconds": _processor,
    "memory": _memory,
    "python_calls": _calls,
    "warnings": _warnings,
    "warning": _warnings,
    "code": _code,
    "code_lines": _code,
    "kernels": _kernels,
}

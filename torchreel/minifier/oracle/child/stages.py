"""The stage that a run is in, the stage in which it failed, and the end of a run that went too far.

The boundaries are the recorder's attach points, so that a signature seen here compares with a
recorded one. A run that gets beyond the step of the recorded failure cannot show that failure any
more. It ends there, before the C++ compiler is started for nothing. Called by both runners.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from torchreel.formats.checkpoints.document import CheckpointDoc, aot_checkpoint
from torchreel.minifier.oracle.child import code_generation
from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.probes import aot, dynamo, export, inductor
from torchreel.store.failures.raised import lineage
from torchreel.torch_compat.patching import patched
from torchreel.torch_compat.versions.names import resolve

# The steps of a compile, in order; two steps may belong to one stage.
STEPS = (
    "dynamo", "pre_grad", "joint", "forward", "post_grad", "lowering", "codegen", "compiler",
    "loaded", "guards",
    "backward", "backward post_grad", "backward lowering", "backward codegen",
    "backward compiler", "backward loaded", "run",
)  # fmt: skip


class StageOver(BaseException):
    """Control flow, not an error: what is looked for can't happen any more.

    No `Exception`, so that no handler of torch's takes it for one.
    """


@dataclass(frozen=True)
class Position:
    """A stage and the partition it works on."""

    stage: str
    partition: str = ""


Announce = Callable[[Position], None]
"""Is called with each stage that a run enters."""


class Stages:
    """Follows one run through its stages."""

    def __init__(self, announce: Announce, ceiling: str | None = None) -> None:
        self._announce = announce
        self._ceiling = STEPS.index(ceiling) if ceiling in STEPS else len(STEPS)
        self._stack: list[Position] = []
        self._reached = 0
        self._failed: tuple[BaseException, Position] | None = None

    @property
    def reached(self) -> str:
        """Return the last step that the run got to."""
        return STEPS[self._reached]

    @property
    def partition(self) -> str:
        """Return the partition of the innermost open stage."""
        return self._stack[-1].partition if self._stack else ""

    def failed_at(self, error: BaseException) -> Position:
        """Return the innermost stage that an exception left."""
        if self._failed is not None and any(e is self._failed[0] for e in lineage(error)):
            return self._failed[1]
        return Position("")

    def inside(self, stage: str, partition: str = "") -> _Span:
        """Return a context in which the run is in that stage."""
        return _Span(self, Position(stage, partition))

    def step(self, name: str) -> None:
        """Note that the run gets to a step.  Raises `StageOver` beyond the ceiling."""
        self._reached = max(self._reached, STEPS.index(name))
        if self._reached > self._ceiling:
            raise StageOver

    def _enter(self, position: Position) -> None:
        self._stack.append(position)
        self._announce(position)
        backward = position.partition == "backward"
        name = f"backward {position.stage}" if backward else position.stage
        self.step(name if name in STEPS else position.stage)

    def _leave(self, error: BaseException | None) -> None:
        position = self._stack.pop()
        if isinstance(error, Exception):
            known = self._failed is not None and any(e is self._failed[0] for e in lineage(error))
            if not known:
                self._failed = (error, position)
        elif self._stack:
            self._announce(self._stack[-1])

    def compiler_step(self) -> str:
        """Note that the C++ compiler is about to start; return the partition that it works for."""
        self.step("backward compiler" if self.partition == "backward" else "compiler")
        return self.partition


class _Span:
    """One stay in a stage."""

    def __init__(self, stages: Stages, position: Position) -> None:
        self._stages, self._position = stages, position

    def __enter__(self) -> None:
        self._stages._enter(self._position)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stages._leave(error)


Locate = Callable[[Stages, dict[str, Any]], Position]


def _in(stage: str, partition: str = "") -> Locate:
    return lambda stages, kwargs: Position(stage, partition)


def _here(stage: str) -> Locate:
    return lambda stages, kwargs: Position(stage, stages.partition)


def _forward(stages: Stages, kwargs: dict[str, Any]) -> Position:
    return Position("forward", "inference" if kwargs.get("is_inference") else "forward")


def _inner(stages: Stages, kwargs: dict[str, Any]) -> Position:
    partition = inductor.partition_of(kwargs)
    return Position("backward" if partition == "backward" else "forward", partition)


POINTS: tuple[tuple[AttachPoint, Locate], ...] = (
    (aot.STATE, _in("joint")),
    (aot.JOINT, _in("joint")),
    (aot.BASE, _in("joint")),
    (aot.PARTITION, _in("joint")),
    (aot.FORWARD, _forward),
    (aot.BACKWARD, _in("backward", "backward")),
    (inductor.PRE_GRAD, _here("pre_grad")),
    (inductor.INNER, _inner),
    (inductor.POST_GRAD, _here("post_grad")),
    (inductor.LOWERING, _here("lowering")),
    (inductor.CODEGEN, _here("codegen")),
    (inductor.MODULE, _here("codegen")),
)


DYNAMO_POINTS = (
    *POINTS,
    (dynamo.ATTEMPT, _in("dynamo")),
    (dynamo.GUARDS, _in("guards")),
    (dynamo.BACKEND, _in("pre_grad")),
)
"""Those of a program that is traced: when a graph is compiled, Dynamo has nothing to do."""
EXPORT_POINTS = (*DYNAMO_POINTS, (export.EXPORT, _in("joint")))
"""Those of a program that is exported."""
WHOLE_POINTS = (*EXPORT_POINTS, (export.PROGRAM, _in("joint")))
"""Those of a whole program, which may compile, export, and decompose what it exported."""


def _followed(stages: Stages, original: Callable[..., Any], locate: Locate) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        position = locate(stages, kwargs)
        with stages.inside(position.stage, position.partition):
            return original(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def followed(
    stages: Stages,
    effort: Callable[[str], code_generation.Effort],
    points: Sequence[tuple[AttachPoint, Locate]] = POINTS,
) -> Iterator[None]:
    """Follow what the compiler does into `stages`, for the length of a `with`.

    `effort` says for each partition what the C++ compiler has to do.
    """
    with contextlib.ExitStack() as patches:
        for point, locate in points:
            importlib.import_module(point.module)
            owner, name = resolve(point)
            following = _followed(stages, vars(owner)[name], locate)
            patches.enter_context(patched(owner, name, following))
        with code_generation.compiler_watched(lambda: effort(stages.compiler_step())):
            yield


@contextlib.contextmanager
def collected_partitions(see: Callable[[CheckpointDoc], None]) -> Iterator[None]:
    """Give each ATen graph to `see` as it enters Inductor, for the length of a `with`."""
    importlib.import_module(inductor.INNER.module)
    owner, name = resolve(inductor.INNER)
    original = vars(owner)[name]

    @functools.wraps(original)
    def wrapper(gm: Any, example_inputs: Sequence[object], *args: Any, **kwargs: Any) -> Any:
        see(aot_checkpoint(gm, example_inputs, kwargs))
        return original(gm, example_inputs, *args, **kwargs)

    with patched(owner, name, wrapper):
        yield

"""Failures: which exceptions are one, where it happened, and the row that says so.

Lives here: the classification of exceptions on their way out of the pipeline.  Not here: what makes
two failures the same bug (`torchreel.store.failures.signature`).  An exception passes several
spans: the innermost says where it happened, the outermost what the program sees; one row is
written.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from torchreel.recorder.event_log.rows import Add, Blob
from torchreel.recorder.event_log.spans import CompileEntry, Mark
from torchreel.recorder.failing_open import fail_open
from torchreel.store.failures.raised import exception_chain, lineage, raised_chain

if TYPE_CHECKING:
    from torchreel.recorder.event_log.rows import AnyWriter
    from torchreel.store.failures.signature import Signature

# Control flow of Dynamo: it tries again, or leaves the frame alone (torch/_dynamo/exc.py).
_RESTARTS = ("RestartAnalysis",)
USUAL_RESTARTS = ("SpeculationRestartAnalysis", "UnspecializeRestartAnalysis")
"""A graph break at a place that was speculated on; a value that is to be dynamic after all.  Any
other restart (of a collective, of autograd.grad, of a tensorified float) is odd."""
_SKIPS = ("SkipFrame",)
# Dynamo could not trace something: it falls back to eager, unless a full graph was asked for.
_SOFT = ("Unsupported", "UserError")


class Stopped(BaseException):
    """Control flow, not an error: a replay was to go no further.

    No `Exception`, so that no handler of torch's takes it for one.
    """


class Written:
    """The last exceptions that were written down, none of them kept alive.

    An exception may leave several spans, and reach the interpreter's hook after that.  Its id alone
    does not tell it from a later one: the id is free again as soon as the program has handled it.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[int, ref[BaseException] | None]] = deque(maxlen=20)

    def add(self, error: BaseException) -> None:
        """Remember an exception; those of built-in classes take no weak reference."""
        try:
            self._known.append((id(error), ref(error)))
        except TypeError:
            self._known.append((id(error), None))

    def __contains__(self, error: BaseException) -> bool:
        return any(
            number == id(error) and (known is None or known() is error)
            for number, known in tuple(self._known)
        )

    def begin(self) -> None:
        """Forget those known by id alone: what fails from now on is another exception."""
        if any(known is None for _, known in tuple(self._known)):
            kept = [item for item in tuple(self._known) if item[1] is not None]
            self._known = deque(kept, maxlen=20)


def _is_a(error: BaseException, names: tuple[str, ...]) -> bool:
    """Return True if `error` is one of Dynamo's own exceptions, which needn't be imported for
    that.
    """
    exc = sys.modules.get("torch._dynamo.exc")
    kinds = tuple(getattr(exc, name) for name in names if hasattr(exc, name))
    return isinstance(error, kinds)


def is_restart(error: BaseException) -> bool:
    """Return True if Dynamo will try this frame again."""
    return _is_a(error, _RESTARTS)


def is_odd_restart(error: BaseException) -> bool:
    """Return True if Dynamo will try this frame again, for a reason that few compiles have."""
    return is_restart(error) and not _is_a(error, USUAL_RESTARTS)


def is_control_flow(error: BaseException) -> bool:
    """Return True if this is no error at all."""
    return isinstance(error, Stopped) or _is_a(error, _RESTARTS + _SKIPS)


def is_soft(error: BaseException) -> bool:
    """Return True if Dynamo falls back to eager on it, when it may."""
    return _is_a(error, _SOFT)


def mark(before: Mark | None, error: BaseException, here: Mark) -> Mark:
    """Return the mark where `error`, or an exception that it comes from, was first seen."""
    if before is not None and any(id(found) == before.error for found in lineage(error)):
        return before
    return here


def of_exception(
    error: BaseException, entry: CompileEntry | None, at: Mark, *, with_text: bool = True
) -> dict[str, object]:
    """Return the columns of a failure that an exception is, with or without text of the
    program's; but for its signature (`AddException`).
    """
    chain = [_member(found, with_text) for found in exception_chain(error)]
    text = "".join(traceback.format_exception(error))
    return {
        **_columns(entry, at.stage, at.partition),
        "failure_class": "exception",
        "exception_type": _type_name(error),
        "message": str(error),
        "chain": chain,
        "traceback": Blob(text),
    }


def _member(error: BaseException, with_text: bool) -> dict[str, object]:
    """Return one exception of a chain, with the functions of the program that are behind it."""
    from torchreel.recorder.frames.definitions import called_definitions, traced_definitions

    member: dict[str, object] = {"type": _type_name(error), "message": str(error)}
    with fail_open("definitions"):
        called = called_definitions(error)
        if called is not None:
            member["called"] = [each._asdict() for each in called if with_text]
        traced = traced_definitions(str(error)) if with_text else []
        if traced:
            member["traced"] = [each._asdict() for each in traced]
    return member


def files_in(columns: Mapping[str, Any]) -> set[str]:
    """Return the files of which a failure has text."""
    parts = [part for link in columns["chain"] for key in _PARTS for part in link.get(key, ())]
    return {str(part["file"]) for part in parts}


_PARTS = ("called", "traced")
"""Keys of the definitions in a member of the chain."""


def of_hang(entry: CompileEntry, stage: str, partition: str, seconds: float) -> dict[str, object]:
    """Return the columns of a failure that is a compile which does not end."""
    from torchreel.store.failures.signature import hang_signature

    return {
        **_columns(entry, stage, partition),
        **_signed(hang_signature(stage, partition)),
        "exception_type": "",
        "message": f"The stage was not over after {seconds:g} s.",
        "chain": [],
    }


def of_wrong_result(entry: CompileEntry, signature: Signature, message: str) -> dict[str, object]:
    """Return the columns of a failure that nothing raised: a compiled graph is wrong."""
    return {
        **_columns(entry, signature.stage, ""),
        **_signed(signature),
        "exception_type": "",
        "message": message,
        "chain": [],
    }


def _columns(entry: CompileEntry | None, stage: str, partition: str) -> dict[str, object]:
    return {
        "compile_id": entry.ref if entry is not None else None,
        "stage": stage,
        "partition": partition,
        "checkpoint_id": entry.checkpoint(partition) if entry is not None else None,
        "time_ns": time.time_ns(),
    }


def _signed(signature: Signature) -> dict[str, object]:
    return {
        "failure_class": signature.failure_class,
        "signature": signature.to_json(),
        "signature_digest": signature.digest,
    }


class AddException(Add):
    """Insert the row of a failure that an exception is.

    Its signature is made of the messages without their secrets. Of one that is made before, parts
    of a secret would be left: without its numbers, or what a long message is cut off after.
    """

    __slots__ = ("raised",)

    def __init__(self, columns: Mapping[str, object], error: BaseException) -> None:
        super().__init__("failures", columns)
        self.raised = raised_chain(error)

    def write(self, writer: AnyWriter) -> None:
        """See `Operation`."""
        from torchreel.store.failures.signature import from_chain

        kept = getattr(writer, "without_secrets", str)
        raised = [each._replace(text=kept(each.text)) for each in self.raised]
        stage, partition = str(self.columns["stage"]), str(self.columns["partition"])
        self.columns = {**self.columns, **_signed(from_chain(raised, stage, partition))}
        super().write(writer)


def _type_name(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"

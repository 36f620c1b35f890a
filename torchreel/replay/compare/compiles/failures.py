"""Compares the failures of a compile and of its replay: the signature, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import shorten

from torchreel.events.backends import BackendReturn
from torchreel.replay.compare.compiles.differences import VALUE
from torchreel.replay.compare.compiles.sides import Side
from torchreel.replay.compare.normalise import (
    canonical_text,
)
from torchreel.replay.compare.rules import SCOPES
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.verdict import Comparison
from torchreel.store import queries
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.normalised_messages import is_compiler_output, own_message
from torchreel.store.records import Failure


def compare_failures(recorded: Side, replayed: Side, point: Point) -> tuple[list[Comparison], str]:
    ours, theirs = failure_in(recorded), failure_in(replayed)
    if failure_out_of_scope(recorded, point) is not None:
        ours = None
    if point.entry == "aot" and ours is not None and ours.partition not in ("", point.partition):
        ours = None
    raised = _fell_back_on(recorded) if ours is None and point.entry == "graph" else None
    if raised is not None:
        again = theirs and (theirs.exception_type.rpartition(".")[2], theirs.message)
        same, stage = raised == again, theirs.stage if theirs else "dynamo"
        row = Comparison(stage, point.partition, "failure", 1, theirs is not None, same)
        what = f"the failure: {raised[0]} of the backend recorded, {name_of(theirs)} replayed"
        return [row], "" if same else what
    if ours is None and theirs is None:
        return [], ""
    same = ours is not None and theirs is not None and _is_same(ours, theirs, point)
    stage = (ours or theirs).stage  # type: ignore[union-attr]
    row = Comparison(stage, point.partition, "failure", ours is not None, theirs is not None, same)
    what = f"the failure: {name_of(ours)} recorded, {name_of(theirs)} replayed"
    return [row], "" if same else what + _messages(ours, theirs)


_RETURN = BackendReturn.kind


def _fell_back_on(side: Side) -> tuple[Json, Json] | None:
    """Return type and message of the backend's exception after which Dynamo fell back on eager.

    For Dynamo that is a graph break and no failure; a replay from the graph has no Dynamo.
    """
    events = [] if side.compile is None else queries.events(side.store, side.compile, _RETURN)
    for event in events:
        data = event.data
        if isinstance(data, Mapping) and data.get("outcome") == "fallback":
            return data.get("exception"), data.get("message")
    return None


# What calls a backend: a replay from the graph calls it without.
_CALLERS = ("torch._dynamo.output_graph:", "torch._dynamo.convert_frame:")


def _is_same(ours: Failure, theirs: Failure, point: Point) -> bool:
    """Return True if both are one failure, whichever function called the backend that raised."""
    wanted, seen = ours.signature, theirs.signature
    if has_unknown_end(ours) and seen.signal in queries.FAULTS:
        wanted = replace(wanted, signal=seen.signal)
    if point.entry == "graph":
        wanted, seen = (
            replace(one, frames=tuple(f for f in one.frames if not f.startswith(_CALLERS)))
            for one in (wanted, seen)
        )
    return wanted.matches(seen) and _said(ours) == _said(theirs)


def _said(failure: Failure) -> str | None:
    """Return the words of an exception, with its numbers and names; None for another failure.

    A signature leaves them out, as it has to know the same bug in a graph that is smaller.
    """
    if failure.failure_class != "exception" or is_compiler_output(failure.message):
        return None  # a compiler names the columns of code, which is compared itself
    return canonical_text(own_message(failure.message)).strip()


def _messages(ours: Failure | None, theirs: Failure | None) -> str:
    """Return both messages where they differ, for the line that says which failures differ."""
    said = [_said(one) for one in (ours, theirs) if one is not None]
    if len(set(said)) < 2 or None in said:
        return ""
    return ": " + ", then ".join(f'"{shorten(str(text), VALUE)}"' for text in said)


def has_unknown_end(failure: Failure) -> bool:
    """Return True for a crash of a process that nobody waited for: its signal is not known."""
    return failure.failure_class == "crash" and failure.signature.signal is None


def failure_in(side: Side) -> Failure | None:
    found = None if side.compile is None else queries.failure_of(side.store, side.compile)
    return None if found is not None and found.is_found else found


def signal_of(side: Side) -> str:
    found = failure_in(side)
    return (found.signature.signal if found is not None else None) or "no signal that is known"


def failure_out_of_scope(side: Side, point: Point) -> Failure | None:
    """Return the failure of a compile if it is of a stage that this entry does not replay.

    Dynamo makes guards after the backend has returned: no replay from the graph can fail there.
    """
    found = failure_in(side)
    is_outside = found is not None and found.stage in SCOPES[point.entry].without
    return found if is_outside else None


def name_of(failure: Failure | None) -> str:
    if failure is None:
        return "none"
    what = failure.exception_type or failure.signature.signal or failure.failure_class
    return f"{what} in stage {failure.stage}"

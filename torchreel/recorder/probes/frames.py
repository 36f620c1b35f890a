"""Frames: what Dynamo does with a frame before, between and instead of tracing it.

Lives here: the frame and who called it, what its cache held and why that could not be reused,
restarts and the speculation that failed, graph breaks, frames left alone.  Not here: the attempts
themselves (`dynamo`), what was traced (`output_graph`).  All of it comes a few times per compile.

`transform_code_object` rather than `trace_frame`, which `dynamo` watches: one attempt at a frame,
seen from outside.
"""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from traceback import FrameSummary
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from torchreel.events.frames import (
    CacheMiss,
    CacheSize,
    FrameSkip,
    FrameStart,
    GraphBreak,
    Recompile,
    Restart,
    SpeculationFailed,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.event_log import failures
from torchreel.recorder.probes.output_graph import REWRITE, note_rewritten

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry
    from torchreel.recorder.recorder import Recorder

_CONVERT = "torch._dynamo.convert_frame"
_GUARDS = "torch._dynamo.guards"
_TRANSLATOR = "torch._dynamo.symbolic_convert"
CACHE_SIZE = AttachPoint(_CONVERT, "compute_cache_size", "the frame that is about to be compiled")
LIMIT = AttachPoint(
    _CONVERT, "exceeds_recompile_limit", "how full a frame's cache is, against the limits"
)
REASONS = AttachPoint(
    _CONVERT,
    "get_and_maybe_log_recompilation_reasons",
    "asks each entry of a frame's cache why it can't be reused",
)
REASON = AttachPoint(_GUARDS, "get_guard_fail_reason", "one cache entry's answer")
CHECK = AttachPoint(
    _GUARDS, "GuardManagerWrapper.check_verbose", "the guard that failed, and how many had held"
)
SPECULATION = AttachPoint(
    _TRANSLATOR,
    "SpeculationEntry.fail_and_restart_analysis",
    "the instruction at which the next attempt will break the graph",
)
BREAK = AttachPoint(
    _TRANSLATOR, "InstructionTranslatorBase.log_graph_break", "a graph break, once each"
)
SKIP = AttachPoint(
    _CONVERT, "CatchErrorsWrapper._handle_skip", "what became of a frame, with the reason",
    since="2.13",
)  # fmt: skip
CONVERT = AttachPoint(
    _CONVERT, "ConvertFrame.__call__", "what became of a frame; there is no reason yet",
    until="2.12",
)  # fmt: skip
_EVAL = "torch._C._dynamo.eval_frame"
SWITCH = AttachPoint(_EVAL, "set_eval_frame", "turns Dynamo off while the recorder works")
MARK = AttachPoint(_EVAL, "set_code_exec_strategy", "has Dynamo leave out the recorder's functions")
STRATEGY = AttachPoint(_EVAL, "_FrameExecStrategy", "what is to be done with a frame")
ACTION = AttachPoint(_EVAL, "_FrameAction", "the one to be done with the recorder's: none")
ATTACH_POINTS = (
    CACHE_SIZE, LIMIT, REASONS, REASON, CHECK, SPECULATION, BREAK, SKIP, CONVERT, SWITCH, MARK,
    STRATEGY, ACTION,
)  # fmt: skip
"""The last four are those of `torchreel.recorder.skipped_frames`."""

EVENTS: Events = {
    CacheSize: (LIMIT, CACHE_SIZE),
    Recompile: (REASONS,),
    CacheMiss: (REASON, CHECK),
    FrameStart: (REWRITE,),
    Restart: (REWRITE,),
    SpeculationFailed: (SPECULATION,),
    GraphBreak: (BREAK, REWRITE),
    FrameSkip: (SKIP, CONVERT),
}

_RESUME_PREFIX = "torch_dynamo_resume_in_"  # torch._dynamo.resume_execution
_TENSOR_GUARD = "tensor '"
"""Beginning of the message of a failed tensor check (torch/csrc/dynamo/guards.cpp)."""


class _Here(threading.local):
    """The state of one thread: the current frame and its guard failures."""

    def __init__(self) -> None:
        self.code: tuple[str, str, int] | None = None
        self.entry: CompileEntry | None = None
        self.failed: tuple[tuple[str, ...], int] | None = None
        """The code parts of the guard that failed, and how many held."""


_here = _Here()


def _identity(code: CodeType) -> tuple[str, str, int]:
    return code.co_name, code.co_filename, code.co_firstlineno


def _see_frame(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    """Remember the frame: one that ends up skipped is known by its code only."""
    _here.code, _here.entry = _identity(args[0].f_code), None


def _see_limit(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    _here.entry = entry = recorder.entry_here()
    if error is not None:
        return
    size, (exceeded, limit) = args[0], result
    recorder.note(
        CacheSize(
            entries=size.num_cache_entries,
            same_objects=size.num_cache_entries_with_same_id_matched_objs,
            all_regions=getattr(size, "total_cache_entries_all_regions", None),
            exceeded=limit if exceeded else "",
            limit=_config(limit or "recompile_limit"),
        ),
        entry=entry,
    )


def _config(name: str) -> int | None:
    value = getattr(sys.modules.get("torch._dynamo.config"), name, None)
    return value if isinstance(value, int) else None


def _reasons(recorder: Recorder, call: Call) -> Visit:
    here = recorder.spans.here
    outer = here.cause
    here.cause = recorder.note(Recompile(_count(call.argument(0, "cache_entries"))))
    try:
        yield
    finally:
        here.cause = outer


def _count(entries: Any) -> int:
    """Return the number of entries of a cache: a list, or in torch 2.12 the first of a chain."""
    if isinstance(entries, list):
        return len(entries)
    count = 0
    while entries is not None:
        count, entries = count + 1, entries.next
    return count


def _see_check(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    _here.failed = None
    if result is not None and not result.result:
        _here.failed = tuple(map(str, result.verbose_code_parts)), result.num_guards_executed


def _reason(recorder: Recorder, call: Call) -> Visit:
    _here.failed = None
    outcome = yield
    found: tuple[tuple[str, ...], int | None] = _here.failed or ((), None)
    parts, held = found
    guards = tuple(_code_part(part) for part in parts)
    name = str(call.argument(3, "compile_id"))
    source = next((text for text in map(_guarded, guards) if text), None)
    recorder.note(CacheMiss(reason=outcome.result, guards=guards, source=source, held=held), name)


def _code_part(part: str) -> str:
    """Return the code of a verbose code part, without the comment on its origin in torch."""
    return part.partition("  # ")[0].rstrip()


def _guarded(part: str) -> str | None:
    """Return the expression that a tensor check is about."""
    if not part.startswith(_TENSOR_GUARD):
        return None
    return part.removeprefix(_TENSOR_GUARD).partition("' ")[0]


def _attempt(recorder: Recorder, call: Call) -> Visit:
    entry = recorder.entry_here()
    code = call.argument(0, "code")
    recorder.note(_start_of(code), code.co_name, entry=entry, stack=_caller_stack(recorder))
    outcome = yield
    if outcome.error is not None:
        _ended(recorder, entry, outcome.error)
    else:
        note_rewritten(recorder, entry, code, outcome.result)


def _start_of(code: CodeType) -> FrameStart:
    arguments = code.co_argcount + code.co_kwonlyargcount
    starred = bool(code.co_flags & 4) + bool(code.co_flags & 8)  # inspect.CO_VARARGS, ..KEYWORDS
    lines = (line for _, _, line in code.co_lines() if line)
    return FrameStart(
        file=code.co_filename,
        line=code.co_firstlineno,
        qualname=code.co_qualname,
        arguments=code.co_varnames[: arguments + starred],
        free=code.co_freevars,
        globals=code.co_names,
        lines=max(lines, default=code.co_firstlineno),
        instructions=len(code.co_code),
        resumes=code.co_name.startswith(_RESUME_PREFIX),
    )


def _caller_stack(recorder: Recorder) -> int | None:
    """Return the stack of who called the frame: Dynamo's own frames stand on top of it."""
    frames: list[FrameSummary] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_CONVERT_FILE):
            frames.clear()
        elif not code.co_filename.endswith(_EVAL_FILE):
            frames.append(
                FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False)
            )
        frame = frame.f_back
    return recorder.user_stack(frames[::-1])


_CONVERT_FILE, _EVAL_FILE = "_dynamo/convert_frame.py", "_dynamo/eval_frame.py"
"""Dynamo's files: frames inside of the first are its own, those of the second are left out."""


def _ended(recorder: Recorder, entry: CompileEntry, error: BaseException) -> None:
    stack = recorder.user_stack(getattr(error, "real_stack", None) or ())
    if failures.is_restart(error):
        kind, reason = type(error).__name__, getattr(error, "restart_reason", None)
        recorder.note(Restart(type=kind, reason=reason, attempt=entry.attempt), kind, entry=entry)
    elif failures.is_soft(error) and not getattr(error, "logged", False):
        sort = getattr(error, "gb_type", None) or ""
        recorder.note(
            GraphBreak(type=sort, reason=str(error), outcome="raised"),
            sort,
            entry=entry,
            stack=stack,
        )


def _speculation(recorder: Recorder, call: Call) -> Visit:
    entry = call.args[0]
    reason = entry.reason.reason if entry.reason is not None else None
    stack = recorder.user_stack(entry.reason.user_stack if entry.reason is not None else ())
    recorder.note(
        SpeculationFailed(
            file=entry.filename,
            line=entry.lineno,
            offset=entry.instruction_pointer,
            instruction=entry.inst.opname,
            reason=reason,
        ),
        entry.inst.opname,
        stack=stack,
    )
    yield


def _graph_break(recorder: Recorder, call: Call) -> Visit:
    error = call.argument(3, "exc")
    if not error.logged:
        sort = getattr(error, "gb_type", None) or type(error).__name__
        stack = recorder.user_stack(getattr(error, "real_stack", None))
        recorder.note(
            GraphBreak(type=sort, reason=call.argument(2, "reason"), outcome="handled"),
            sort,
            stack=stack,
        )
    yield


def _see_skip(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: Any,
    error: BaseException | None,
) -> None:
    skipped = error is None and result.skip_reason is not None
    reason = result.skip_reason if skipped else None
    _note_skip(recorder, args[2].f_code, result if skipped else None, reason)


def _convert(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    _note_skip(recorder, call.args[1].f_code, None if outcome.error else outcome.result, None)


def _note_skip(recorder: Recorder, code: CodeType, result: Any, reason: str | None) -> None:
    """Note that a frame is left to Python, unless `result` is None or has code to run instead."""
    entry = _here.entry if _here.code == _identity(code) else None
    _here.code = _here.entry = None
    if result is None or result.guarded_code is not None:
        return
    strategy = result.frame_exec_strategy
    skip = FrameSkip(
        reason=reason,
        file=code.co_filename,
        line=code.co_firstlineno,
        strategy=(strategy.cur_action.name, strategy.recursive_action.name),
    )
    with recorder.spans.outside(entry) if entry is not None else nullcontext():
        recorder.note(skip, code.co_name, entry=entry)
    if entry is not None and entry.status == "ok":  # it ended without an error
        entry.status = "skipped"
        recorder.update_compile(entry, status=entry.status)


PROBES = (
    Tap(CACHE_SIZE, _see_frame),
    Tap(LIMIT, _see_limit),
    Probe(REASONS, _reasons),
    Tap(CHECK, _see_check),
    Probe(REASON, _reason),
    Probe(REWRITE, _attempt),
    Probe(SPECULATION, _speculation),
    Probe(BREAK, _graph_break),
    Tap(SKIP, _see_skip),
    Probe(CONVERT, _convert, skips="skip"),
)

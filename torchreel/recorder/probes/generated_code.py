"""The code objects that Dynamo generates for frames, and the compile of each.

Lives here: telling an error of an instruction that Dynamo wrote from one of the program's own.  Not
here: errors of compiled graphs (`run`).
"""

from __future__ import annotations

import itertools
import weakref
from types import CodeType, TracebackType
from typing import Any

from torchreel.recorder.event_log.spans import CompileEntry

_codes: dict[int, tuple[weakref.ref[CodeType], CompileEntry, bool]] = {}
"""By the id of a code object, because equal ones are of several compiles."""


def remember(result: Any, original: CodeType, entry: CompileEntry) -> None:
    """Note the code that a compile of a frame returned, if it returned any."""
    code = getattr(getattr(result, "guarded_code", None), "code", None)
    if type(code) is CodeType:
        key = id(code)
        # without debug ranges, no instruction has columns
        has_columns = any(column is not None for _, _, column, _ in original.co_positions())
        _codes[key] = weakref.ref(code, lambda _: _codes.pop(key, None)), entry, has_columns


def of_error(error: Exception) -> CompileEntry | None:
    """Return the compile in whose own instructions an exception was raised; None for any other.

    Dynamo keeps the columns of the program's instructions, and gives its own none.
    """
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return None if innermost is None else _of_instruction(innermost)


def _of_instruction(place: TracebackType) -> CompileEntry | None:
    code = place.tb_frame.f_code
    known = _codes.get(id(code))
    if known is None or known[0]() is not code:
        return None
    _, entry, has_columns = known
    return entry if has_columns and _column(code, place.tb_lasti // 2) is None else None


def _column(code: CodeType, number: int) -> int | None:
    """Return the column of an instruction; None if it has none."""
    position = next(itertools.islice(code.co_positions(), number, None), None)
    return None if position is None else position[2]

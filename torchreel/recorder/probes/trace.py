"""torch's structured trace: every record of it becomes an event.

Lives here: the logging handler, and what is taken out of the records besides (generated code).
Not here: what the probes see for themselves.  torch emits the trace whenever its logger has a
handler, whether TORCH_TRACE is set or not; a kind of record that is new to us is stored all the
same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchreel.recorder import attach, guard
from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.guard import fail_open

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

LOGGER = AttachPoint("torch._logging._internal", "trace_log", "receives the structured trace")
ATTACH_POINTS = (LOGGER,)

OUTPUT_CODE = "inductor_output_code"

# Keys that torch adds to every record (trace_structured in torch/_logging/_internal.py).
_CONTEXT = frozenset(
    {
        "rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "severity",
        "timestamp", "pathname", "thread", "subgraph_name", "has_payload", "stack",
    }
)  # fmt: skip


class TraceHandler(logging.Handler):
    """Receives the records of torch's trace logger."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self._logger: logging.Logger | None = None

    def attach(self) -> None:
        """Sit on the logger; only possible once torch has set up its logging."""
        internal = sys.modules.get(LOGGER.module)
        logger = getattr(internal, LOGGER.qualname, None)
        if logger is None or self._logger is not None:
            return
        logger.addHandler(self)
        # Before torch's own, which takes itself off the list while records are being handed out.
        logger.handlers.insert(0, logger.handlers.pop())
        self._logger = logger

    def detach(self) -> None:
        """Leave the logger."""
        if self._logger is not None:
            self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by torch, in the thread that compiles."""
        recorder = attach.active()
        if recorder is None or recorder.busy:
            return
        with fail_open("trace"):
            guard.check("trace")
            _receive(recorder, record)


def _receive(recorder: Recorder, record: logging.LogRecord) -> None:
    metadata = getattr(record, "metadata", None)
    payload = getattr(record, "payload", None)
    if not isinstance(metadata, Mapping):
        return
    kind = next((key for key in metadata if key not in _CONTEXT), "unknown")
    entry = recorder.spans.of_trace(metadata)
    text = payload if payload is None or isinstance(payload, str) else repr(payload)
    recorder.note_trace(kind, _name(metadata.get(kind)), dict(metadata), text, entry)
    if kind == OUTPUT_CODE and text is not None and entry is not None:
        recorder.add_output_code(entry, text)


def _name(data: object) -> str:
    name = data.get("name") if isinstance(data, Mapping) else None
    return str(name) if name is not None else ""

"""torch's structured trace: every record of it becomes an event.

Lives here: the logging handler, and what is taken out of the records besides (generated code).
Not here: what the probes see for themselves.  torch emits the trace whenever its logger has a
handler, whether TORCH_TRACE is set or not; a kind of record that is new to us is stored all the
same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchreel.events.trace import TraceStrings
from torchreel.recorder import attach, failing_open
from torchreel.recorder.attach import AttachPoint, Events, Override, Printer
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes.bytecode import printable, without_globals
from torchreel.store.trace.metadata import STRING, kind_of, name_of

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

LOGGER = AttachPoint("torch._logging._internal", "trace_log", "receives the structured trace")
NUMBERS = AttachPoint(
    "torch._logging.structured",
    "INTERN_TABLE",
    "file names and the numbers that stand for them in the trace; written once in a process",
)
PRINTED = tuple(
    AttachPoint(
        f"torch._functorch._aot_autograd.{module}",
        "dataclass_repr",
        "prints AOTAutograd's metadata, and the tensors in it, for the structured trace",
    )
    for module in ("graph_capture", "graph_compile")
)
DISASSEMBLER = AttachPoint(
    "torch._dynamo.convert_frame",
    "dis",
    "prints the bytecode of resume functions, and its constants, for the structured trace",
)
ATTACH_POINTS = (LOGGER, NUMBERS, *PRINTED, DISASSEMBLER)
_DEEPEST = 8
"""Levels of metadata that are looked through for tensors: more than it has."""

OUTPUT_CODE = "inductor_output_code"

EVENTS: Events = {
    TraceStrings: (LOGGER, NUMBERS),
}


def _unprintable(args: tuple[Any, ...]) -> str | None:
    """Return a placeholder for metadata that can't be printed while tracing; None if it can be.

    A wrapper subclass that is not torch's may be printed by its values: operators would run on a
    traced tensor, and where values are read, the compile would fail.
    """
    if not _are_alone():
        return None
    tensor = sys.modules["torch"].Tensor
    found = {
        type(item).__name__
        for item in _tensors(args, tensor, _DEEPEST)
        if hasattr(type(item), "__tensor_flatten__") and not _prints_no_values(type(item), tensor)
    }
    return f"not printed: it has values of {', '.join(sorted(found))}" if found else None


def _are_alone() -> bool:
    """Return True if the structured trace is written for us only."""
    handlers = sys.modules[LOGGER.module].trace_log.handlers
    return all(isinstance(handler, TraceHandler) for handler in handlers)


def _prints_no_values(kind: type, tensor: type) -> bool:
    """Return True for a class with a `__repr__` of torch's that was written for it."""
    home = getattr(kind.__repr__, "__module__", None) or ""
    return kind.__repr__ is not tensor.__repr__ and home.partition(".")[0] == "torch"


def _tensors(value: object, tensor: type, depth: int) -> Iterator[object]:
    """Yield the tensors in nested dataclasses and containers."""
    if isinstance(value, tensor):
        yield value
    elif depth and isinstance(value, (list, tuple, set, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item, tensor, depth - 1)
    elif depth and is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name, None), tensor, depth - 1)


class _Disassembler(ModuleType):
    """Python's `dis`, for whom bytecode prints no object of the program while only we listen.

    A constant may be the dictionary of all globals of a module: to print it runs the `__repr__` of
    whatever is in there.
    """

    __torchreel__ = True

    def __init__(self, original: ModuleType) -> None:
        super().__init__(original.__name__, original.__doc__)
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def Bytecode(self, code: Any, *args: Any, **kwargs: Any) -> Any:
        """Do as `dis.Bytecode`."""
        with fail_open(str(DISASSEMBLER)):
            failing_open.check(str(DISASSEMBLER))
            if attach.active() is not None and _are_alone():
                code = printable(code)
        return self._original.Bytecode(code, *args, **kwargs)


PROBES = (
    *(Printer(point, _unprintable) for point in PRINTED),
    Override(DISASSEMBLER, _Disassembler),
)


class TraceHandler(logging.Handler):
    """Receives the records of torch's trace logger."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self._logger: logging.Logger | None = None
        self._begun: object = None
        """The row of the recording that has got a record already (a fork begins another)."""

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
        """Leave the logger, also while a record is being handed out: the list of that stays."""
        if self._logger is not None:
            self._logger.handlers = [one for one in self._logger.handlers if one is not self]

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record of torch's trace; called by torch, in the thread that compiles."""
        recorder = attach.active()
        if recorder is None or recorder.busy:
            return
        with fail_open("trace"):
            failing_open.check("trace")
            metadata = getattr(record, "metadata", None)
            if isinstance(metadata, Mapping):
                self._begin(recorder, metadata)
                _receive(recorder, record, metadata)

    def _begin(self, recorder: Recorder, metadata: Mapping[str, object]) -> None:
        """Note, before the first record, the strings that torch's trace had numbered by then."""
        row = recorder.event_log.recording
        if self._begun is row:
            return
        self._begun = row
        table = getattr(sys.modules.get(NUMBERS.module), NUMBERS.qualname, {})
        names = tuple(pair for pair in table.items() if pair != metadata.get(STRING))
        if names:
            recorder.note(TraceStrings(names))


_places: dict[str, str] = {}
"""Files of torch, as the prefix of a record names them."""


def _place(path: str) -> str:
    found = _places.get(path)
    if found is None:
        relative = getattr(sys.modules.get(LOGGER.module), "make_module_path_relative", str)
        found = _places[path] = str(relative(path))
    return found


def _receive(recorder: Recorder, record: logging.LogRecord, metadata: Mapping[str, object]) -> None:
    payload = getattr(record, "payload", None)
    kind = kind_of(metadata)
    entry = recorder.spans.of_trace(metadata)
    text = payload if payload is None or isinstance(payload, str) else repr(payload)
    name = name_of(metadata.get(kind))
    if text is not None and name.endswith("_BYTECODE"):
        text = without_globals(text)
    data = {**metadata, "pathname": _place(record.pathname), "lineno": record.lineno}
    recorder.note_trace(kind, name, data, text, entry)
    if kind == OUTPUT_CODE and text is not None and entry is not None:
        recorder.add_output_code(entry, text)

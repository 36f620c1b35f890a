"""torch's trace format: what `TORCH_TRACE` writes into a directory, and tlparse reads.

A log file holds records, in order.  Each is a line in the form of glog,

    V1121 06:38:28.026000 17230 torch/_dynamo/utils.py:2350] {"chromium_event": {}, ...}

whose end is the metadata, a JSON object; `has_payload` in it announces a payload and gives its
MD5.  The lines of a payload follow, each behind a tab.  Names of files inside of stacks are
numbers, which records of kind `str` explain (torch/_logging/_internal.py: TorchLogsFormatter,
LazyTraceHandler).

Lives here: reading and writing of one file.  Not here: what records mean (`trace_import` in the
recorder, `trace.export`).  What is read is data, and may lie: nothing in it is executed or opened.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from torchreel.store.documents.jsontypes import Json
from torchreel.store.trace.metadata import kind_of

FILE_PREFIX = "dedicated_log_torch_trace_"
FILE_PATTERN = re.compile(rf"{FILE_PREFIX}(?:rank_(?P<rank>\d{{1,9}})_)?.*\.log", re.DOTALL)

LONGEST_LINE = 64 << 20
"""Bytes; torch asks for metadata of less than 1 MB, and for payloads without long lines."""
LARGEST_PAYLOAD = 256 << 20

_HEAD = re.compile(
    rb"(?P<severity>[VIWEC])(?P<month>\d\d)(?P<day>\d\d) "
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\.(?P<micros>\d{6}) "
    rb"(?P<pid>\d{1,18}) (?P<path>.+?):(?P<line>\d{1,18})\] (?P<metadata>\{.*)",
    re.DOTALL,
)
_DAY_NS = 24 * 3600 * 10**9
_LATEST_NS = 2**62  # in the year 2116; a stranger's store may say anything
# White space, and surrogates that stand for no byte.
_UNFIT = re.compile("[\\s\\]\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True)
class Record:
    """One record; `payload` is None where there is none, and `intact` whether its MD5 is right."""

    time_ns: int
    pid: int
    pathname: str
    lineno: int
    metadata: Mapping[str, Json]
    payload: bytes | None = None
    intact: bool = True
    severity: str = "V"

    @property
    def kind(self) -> str:
        """The first key that is no context, as for torch."""
        return kind_of(self.metadata)


@dataclass(frozen=True)
class Fault:
    """A part of a file that is no record: why, and what was found."""

    reason: str
    found: str


def digest_of_payload(payload: bytes) -> str:
    """Return the value of `has_payload`."""
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()


# -- reading ------------------------------------------------------------------------------------


def read(stream: BinaryIO, before_ns: int) -> Iterator[Record | Fault]:
    """Yield the records of a log file, and what in it is none.

    A record does not say its year: it is the last in which its time is not after `before_ns` (the
    time of the file's last change; a day of grace is for clocks and time zones).
    """
    head: Record | Fault | None = None
    payload = _Payload()
    for line in _lines(stream):
        if line.startswith(b"\t") and isinstance(head, Record):
            payload.add(line[1:])
            continue
        if head is not None:
            yield payload.given_to(head)
        head, payload = _head(line, before_ns), _Payload()
    if head is not None:
        yield payload.given_to(head)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines without their ends; of one that is too long, its beginning."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while rest := stream.readline(LONGEST_LINE):
                if rest.endswith(b"\n"):
                    break
        yield line.removesuffix(b"\n")


class _Payload:
    """The lines behind a record."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        self._size += len(line) + 1
        if self._size <= LARGEST_PAYLOAD:
            self._lines.append(line)

    def given_to(self, head: Record | Fault) -> Record | Fault:
        if isinstance(head, Fault):
            return head
        expected = head.metadata.get("has_payload")
        payload = b"\n".join(self._lines) if self._lines else None
        intact = expected == (None if payload is None else digest_of_payload(payload))
        return Record(
            head.time_ns, head.pid, head.pathname, head.lineno, head.metadata, payload, intact,
            head.severity,
        )  # fmt: skip


def _head(line: bytes, before_ns: int) -> Record | Fault:
    match = _HEAD.fullmatch(line)
    if match is None:
        return Fault("a line that is no record", _quoted(line))
    try:
        time_ns = _time_ns(match, before_ns)
        metadata: Any = json.loads(match["metadata"])
    except (ValueError, RecursionError, OverflowError, OSError):
        return Fault("a record that can't be read", _quoted(line))
    # A JSON text that begins with a brace is an object, or none.
    return Record(
        time_ns, int(match["pid"]), match["path"].decode("utf-8", "surrogateescape"),
        int(match["line"]), metadata, severity=match["severity"].decode(),
    )  # fmt: skip


def _quoted(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "replace"))


def _time_ns(match: re.Match[bytes], before_ns: int) -> int:
    """Return a local time, in the form of torch's formatter, as nanoseconds."""
    numbers = [int(match[part]) for part in ("month", "day", "hour", "minute", "second")]
    year = datetime.fromtimestamp(before_ns / 1e9).year
    found = _seconds(year, numbers)
    if found is None or found * 10**9 > before_ns + _DAY_NS:
        found = _seconds(year - 1, numbers)
    if found is None:
        raise ValueError("no such day")
    return found * 10**9 + int(match["micros"]) * 1000


def _seconds(year: int, numbers: list[int]) -> int | None:
    try:
        return int(datetime(year, *numbers).timestamp())  # type: ignore[arg-type]
    except ValueError:
        return None


# -- writing ------------------------------------------------------------------------------------


def write(stream: BinaryIO, record: Record) -> None:
    """Append a record as torch's formatter does; `has_payload` is made anew from the payload."""
    metadata = {key: value for key, value in record.metadata.items() if key != "has_payload"}
    if record.payload is not None:
        metadata["has_payload"] = digest_of_payload(record.payload)
    stream.write(_prefix(record) + json.dumps(metadata).encode() + b"\n")
    if record.payload is not None:
        stream.write(b"".join(b"\t" + line + b"\n" for line in record.payload.split(b"\n")))


def _prefix(record: Record) -> bytes:
    seconds, rest = divmod(min(max(record.time_ns, 0), _LATEST_NS), 10**9)
    clock = time.strftime("%m%d %H:%M:%S", time.localtime(seconds))
    # One line, whatever a stranger's store calls a path; the grammar ends it at ':NUMBER] '.
    path = _UNFIT.sub("_", record.pathname) or "unknown"
    text = f"{record.severity}{clock}.{rest // 1000:06d} {record.pid} {path}:{record.lineno}] "
    return text.encode("utf-8", "surrogateescape")

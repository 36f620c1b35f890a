"""A directory that `TORCH_TRACE` filled, as recordings of kind 'import': one for each log file.

Lives here: what the records of the trace say about compiles, failures and generated code.  Not
here: the format (`trace_records`).  A trace comes from somebody else: what can't be
read is counted as lost, and nothing of it is executed, or opened because the trace names it.

The trace has no portable graphs and no checkpoints, so an import is there to be read, searched and
compared, and can't be replayed.
"""

from __future__ import annotations

import json
import stat
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchreel.errors import MissingStore, RefusedError, UsageError
from torchreel.recorder.event_log.rows import plain
from torchreel.store.blobs.pages import write_page, write_pages
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.normalised_messages import normalise_message
from torchreel.store.failures.signature import Signature
from torchreel.store.trace.metadata import STRING, compile_name, name_of
from torchreel.store.trace.trace_records import FILE_PATTERN, FILE_PREFIX, Fault, Record, read
from torchreel.store.writer import Writer

_PAGE = 4000
"""Events of a page, at most."""
_LARGEST = 2**63 - 1

# Exceptions by which Dynamo leaves a frame alone (torch/_dynamo/exc.py); no failures.
_SKIPS = ("SkipFrame", "SkipCodeRecursiveException")
# A backend raised it, in a stage that the trace does not name; whatever else is Dynamo's own.
_BACKEND = ("BackendCompilerFailed", "InductorError")


@dataclass(frozen=True)
class Imported:
    """The recording made from one log file."""

    recording: int
    file: str
    events: int
    compiles: int
    lost: int


def import_trace(directory: str | Path, target: str | Path) -> list[Imported]:
    """Read the log files of a directory (or one log file) into the store at `target`.

    Each becomes a recording; all are of one run.  A file is made where there is none.
    Raises MissingStore when there is nothing at `directory`, UsageError when it holds no log of
    TORCH_TRACE, RefusedError when one of them has no readable record; the store then has none of
    that file.
    """
    files = _log_files(Path(directory))
    run = uuid.uuid4().hex[:12]
    with Store.open(target, write=True, create="://" not in str(target)) as store:
        return [_import_file(store, file, run) for file in files]


def _log_files(place: Path) -> list[Path]:
    """Return the log files, without links and pipes, which may lead anywhere."""
    try:
        if place.is_file():
            return [place]
        found = sorted(place.iterdir())
    except OSError as error:
        reason = error.strerror or "it can't be read"
        raise MissingStore(f"{place} can't be imported: {reason}.") from error
    logs = [file for file in found if FILE_PATTERN.fullmatch(file.name) and _is_regular(file)]
    if not logs:
        raise UsageError(
            f"{place} holds no log of TORCH_TRACE: such a directory has files "
            f"'{FILE_PREFIX}*.log'; found {len(found)} other files."
        )
    return logs


def _is_regular(file: Path) -> bool:
    return stat.S_ISREG(file.lstat().st_mode)


def _import_file(store: Store, file: Path, run: str) -> Imported:
    try:
        with file.open("rb") as stream, store.writer() as writer:
            importer = _Importer(writer, file, run)
            for found in read(stream, file.stat().st_mtime_ns):
                importer.add(found)
            return importer.finish()
    except OSError as error:
        raise RefusedError(f"{file} can't be read: {error.strerror or error}.") from error


@dataclass(eq=False)
class _Compile:
    """One attempt, as far as its records tell."""

    row: int
    started_ns: int
    ended_ns: int
    columns: dict[str, object] = field(default_factory=dict)
    began: bool = False
    metrics: Mapping[str, Json] | None = None


@dataclass(frozen=True)
class _Event:
    """One record, whose payload is in the store already."""

    time_ns: int
    name: str
    seq: int
    payload: str | None
    data: Json


class _Importer:
    """Turns the records of one file into rows."""

    def __init__(self, writer: Writer, file: Path, run: str) -> None:
        self.writer, self.file, self.run = writer, file, run
        self.recording = 0
        self.events = 0
        self.lost: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.strings: dict[int, str] = {}
        self.compiles: dict[tuple[str, int], _Compile] = {}
        self.pages: dict[tuple[int | None, str], list[_Event]] = {}
        self.last_ns = 0
        self.rank: int | None = None
        self.codes: Counter[int] = Counter()

    def add(self, found: Record | Fault) -> None:
        """Add one record, or count a fault as lost."""
        if isinstance(found, Fault):
            self._lose(found.reason, found.found)
            return
        if not self.recording:
            self._begin(found)
        self.events += 1
        self.last_ns = found.time_ns
        compile_ = self._compile_of(found)
        payload = None if found.payload is None else self.writer.blob(found.payload)
        if not found.intact:
            self._lose("a payload that is not what its digest says", f"{found.kind!r:.80}")
        self._look(found, compile_, payload)
        self._keep(found, compile_, payload)

    def _lose(self, reason: str, found: str) -> None:
        self.lost[reason] += 1
        self.messages.setdefault(reason, f"first at event {self.events + 1}: {found}")

    def _begin(self, first: Record) -> None:
        self.recording = self.writer.add(
            "recordings",
            run=self.run,
            kind="import",
            pid=first.pid,
            argv=[self.file.name],
            cwd="",
            started_ns=first.time_ns,
            status="done",
        )

    def _keep(self, found: Record, compile_: _Compile | None, payload: str | None) -> None:
        data = {**found.metadata, "pathname": found.pathname, "lineno": found.lineno}
        name = name_of(found.metadata.get(found.kind))
        row = None if compile_ is None else compile_.row
        page = self.pages.setdefault((row, found.kind), [])
        page.append(_Event(found.time_ns, name, self.events, payload, plain(data)))
        if len(page) == _PAGE:
            self._write_page(row, found.kind, self.pages.pop((row, found.kind)))

    def _write_page(self, compile_: int | None, kind: str, events: list[_Event]) -> None:
        nothing = [None] * len(events)
        columns: dict[str, list[object]] = {
            name: [getattr(event, name) for event in events]
            for name in ("seq", "time_ns", "name", "payload", "data")
        }
        document = write_page(
            {**columns, "stage": nothing, "cause": nothing, "stack": nothing}, None, str
        )
        self.writer.add(
            "event_pages",
            recording_id=self.recording,
            compile_id=compile_,
            first_seq=events[0].seq,
            last_seq=events[-1].seq,
            kinds=[[kind, len(events)]],
            digest=self.writer.blob(write_pages([document])),
        )

    # -- what records say -----------------------------------------------------------------------

    def _compile_of(self, found: Record) -> _Compile | None:
        metadata = found.metadata
        name = compile_name(metadata)
        parts = (metadata.get(key) for key in ("compiled_autograd_id", "frame_id"))
        if name is None or not all(part is None or _is_number(part) for part in parts):
            return None
        if metadata.get("frame_id") is not None and not _is_number(
            metadata.get("frame_compile_id")
        ):
            return None
        attempt = metadata.get("attempt", 0)
        key = (name, attempt if _is_number(attempt) else 0)
        compile_ = self.compiles.get(key)  # type: ignore[arg-type]
        if compile_ is None:
            compile_ = self._add_compile(found, *key)  # type: ignore[arg-type]
        compile_.ended_ns = found.time_ns
        return compile_

    def _add_compile(self, found: Record, name: str, attempt: int) -> _Compile:
        row = self.writer.add(
            "compiles",
            recording_id=self.recording,
            compile_id=name,
            frame_id=found.metadata.get("frame_id"),
            frame_compile_id=found.metadata.get("frame_compile_id"),
            attempt=attempt,
            frame_name="",
            frame_file="",
            frame_line=0,
            status="running",
            started_ns=found.time_ns,
        )
        made = self.compiles[name, attempt] = _Compile(row, found.time_ns, found.time_ns)
        return made

    def _look(self, found: Record, compile_: _Compile | None, payload: str | None) -> None:
        data = found.metadata.get(found.kind)
        if found.kind == STRING:
            self._learn(data)
        rank = found.metadata.get("rank")
        if _is_number(rank):
            self.rank = rank  # type: ignore[assignment]
        if found.kind == "artifact" and name_of(data) == "torch_version":
            self._learn_version(found.payload or b"")
        if compile_ is None:
            return
        if found.kind == "dynamo_start":
            compile_.began = True
            compile_.columns.update(self._frame(data))
        elif found.kind == "compilation_metrics" and isinstance(data, Mapping):
            compile_.metrics = data
        elif found.kind == "inductor_output_code" and payload is not None:
            self._add_code(compile_, payload)

    def _learn(self, data: Json) -> None:
        if isinstance(data, list) and len(data) == 2 and isinstance(data[1], int):
            self.strings[data[1]] = str(data[0])

    def _learn_version(self, payload: bytes) -> None:
        try:
            version = json.loads(payload)["pytorch_version"]
        except (ValueError, RecursionError, TypeError, LookupError):
            return
        if isinstance(version, str):
            self.writer.put("environment", recording_id=self.recording, key="torch", value=version)

    def _frame(self, data: Json) -> dict[str, object]:
        """Return the innermost frame of the stack that a compile began with: the compiled one."""
        stack = data.get("stack") if isinstance(data, Mapping) else None
        frame = stack[-1] if isinstance(stack, list) and stack else None
        if not isinstance(frame, Mapping):
            return {}
        file, line = frame.get("filename"), frame.get("line")
        known = self.strings.get(file, "") if isinstance(file, int) else str(file)
        return {
            "frame_name": str(frame.get("name", "")),
            "frame_file": known,
            "frame_line": line if _is_number(line) else 0,
        }

    def _add_code(self, compile_: _Compile, payload: str) -> None:
        row = {"compile_id": compile_.row, "partition": "", "digest": payload}
        self.writer.add("output_codes", **row, ordinal=self.codes[compile_.row])
        self.codes[compile_.row] += 1

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> Imported:
        """Write the columns and losses that are known only at the end of the file.

        Raises RefusedError if the file had no record.
        """
        if not self.recording:
            raise RefusedError(
                f"{self.file} is no log of TORCH_TRACE: it has no record of the form "
                "'V1231 23:59:59.000000 PID FILE:LINE] {...}'; "
                f"found {sum(self.lost.values())} other lines."
            )
        for (row, kind), events in self.pages.items():
            self._write_page(row, kind, events)
        for (name, attempt), compile_ in self.compiles.items():
            self._finish_compile(name, attempt, compile_)
        self.writer.update("recordings", self.recording, rank=self._rank(), ended_ns=self.last_ns)
        self.writer.add_many("lost", list(self._losses()))
        lost = sum(self.lost.values())
        return Imported(self.recording, self.file.name, self.events, len(self.compiles), lost)

    def _losses(self) -> Iterator[dict[str, object]]:
        for reason, count in self.lost.items():
            yield {
                "recording_id": self.recording,
                "reason": reason,
                "place": "import",
                "count": count,
                "message": self.messages[reason],
            }

    def _rank(self) -> int | None:
        if self.rank is not None:
            return self.rank
        match = FILE_PATTERN.fullmatch(self.file.name)
        return int(match["rank"]) if match is not None and match["rank"] else None

    def _finish_compile(self, name: str, attempt: int, compile_: _Compile) -> None:
        status = self._status(name, attempt, compile_)
        # Only the first attempt says of which frame it is.
        frame = self.compiles.get((name, 0), compile_).columns
        columns = {**frame, "status": status, "ended_ns": compile_.ended_ns}
        if status == "crashed":
            columns["ended_ns"] = None
        self.writer.update("compiles", compile_.row, **columns)
        if status == "failed" and compile_.metrics is not None:
            self._add_failure(compile_, compile_.metrics)

    def _status(self, name: str, attempt: int, compile_: _Compile) -> str:
        """Return the status of a compile by its metrics; 'crashed' or 'ok' if it has none."""
        if (name, attempt + 1) in self.compiles:
            return "restarted"
        if compile_.metrics is None:
            began = self.compiles.get((name, 0), compile_).began
            return "crashed" if began else "ok"
        reason = compile_.metrics.get("fail_type")
        if reason in _SKIPS:
            return "skipped"
        return "ok" if reason is None else "failed"

    def _add_failure(self, compile_: _Compile, metrics: Mapping[str, Json]) -> None:
        kind, message = str(metrics.get("fail_type")), str(metrics.get("fail_reason") or "")
        stage = "pre_grad" if kind in _BACKEND else "dynamo"
        signature = Signature("exception", stage, "", (kind,), (), normalise_message(message))
        traceback = metrics.get("exception_stack_trace")
        text = "".join(map(str, traceback)) if isinstance(traceback, list) else ""
        self.writer.add(
            "failures",
            recording_id=self.recording,
            compile_id=compile_.row,
            stage=stage,
            partition="",
            failure_class="exception",
            exception_type=kind,
            message=message,
            chain=[{"type": kind, "message": message}],
            traceback=self.writer.blob(text.encode("utf-8", "surrogatepass")) if text else None,
            signature=signature.to_json(),
            signature_digest=signature.digest,
            time_ns=compile_.ended_ns,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST

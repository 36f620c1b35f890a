"""The bundle: a new store with one recording, one compile, and the case that fails.

Lives here: which rows a bundle has. Nothing of the store that it was made from comes here: a case
that was constructed, and the signature that this case showed.
"""

from __future__ import annotations

import platform
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from torchreel.minifier.cases.case import Case
from torchreel.store import Store
from torchreel.store.configs import ConfigEntry
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import Signature
from torchreel.store.writer import Writer

FRAME = "f1"
RUN = "shared"


@dataclass(frozen=True)
class Content:
    """The content of a bundle."""

    case: Case
    signature: Signature
    """As the case showed it here, in a process that knew nothing of the program."""
    was_reduced: bool
    needed: tuple[str, ...] = ()
    """The numbers in the case that the failure needs, as text."""


def write_bundle(path: Path, content: Content) -> None:
    """Write a new store; there must be no file at the path yet."""
    with Store.open(path, create=True) as store, store.writer() as writer:
        _write(writer, content)
    # Written anew once more: nothing is in it that no row holds.
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")


def versions() -> dict[str, str]:
    """Return the versions that decide a failure on this machine: torch, Python and machine type."""
    return {
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _write(writer: Writer, content: Content) -> None:
    recording = writer.add(
        "recordings", run=RUN, kind="program", pid=0, argv=[], cwd="", started_ns=0, ended_ns=0,
        status="done",
    )  # fmt: skip
    rows = [{"recording_id": recording, "key": k, "value": v} for k, v in versions().items()]
    writer.add_many("environment", rows)
    case, signature = content.case, content.signature
    doc = case.checkpoint
    row = writer.add(
        "compiles", recording_id=recording, compile_id="0/0", frame_id=0, frame_compile_id=0,
        attempt=0, frame_name=FRAME, frame_file="", frame_line=0, backend=case.backend,
        config_id=writer.config([_entry(entry) for entry in doc.config]), status="failed",
        started_ns=0, ended_ns=0, generation=0,
    )  # fmt: skip
    counts = doc.graph.counts()
    graph = writer.add(
        "graphs", compile_id=row, stage=_STAGES[doc.entry], partition=doc.partition, ordinal=0,
        digest=writer.blob(doc.graph.to_bytes()), **counts._asdict(),
    )  # fmt: skip
    targets = [
        {"graph_id": graph, "depth": depth, "target": target, "count": count}
        for depth, target, count in doc.graph.targets()
    ]
    writer.add_many("graph_targets", targets)
    checkpoint = writer.add(
        "checkpoints", compile_id=row, entry=doc.entry, partition=doc.partition, ordinal=0,
        digest=writer.blob(doc.to_bytes()), graph_id=graph,
    )  # fmt: skip
    failure = _failure(writer, recording, row, checkpoint, signature)
    _case(writer, case, failure, content)


_STAGES = {"graph": "dynamo", "aot": "forward"}


def _entry(entry: Json) -> ConfigEntry:
    fields = as_object(entry)
    return ConfigEntry(str(fields["module"]), str(fields["key"]), fields["value"], True)


def _failure(
    writer: Writer, recording: int, compile: int, checkpoint: int, signature: Signature
) -> int:
    return writer.add(
        "failures", recording_id=recording, compile_id=compile, stage=signature.stage,
        partition=signature.partition, failure_class=signature.failure_class,
        exception_type=signature.exception_types[0] if signature.exception_types else "",
        message=signature.message, chain=[], signature=signature.to_json(),
        signature_digest=signature.digest, checkpoint_id=checkpoint, time_ns=0,
    )  # fmt: skip


def _case(writer: Writer, case: Case, failure: int, content: Content) -> None:
    writer.put(
        "cases", digest=case.digest, failure_id=failure, call_nodes=case.call_nodes,
        document=writer.blob(case.to_bytes()),
    )  # fmt: skip
    writer.add(
        "reductions", failure_id=failure, start_case=case.digest, best_case=case.digest,
        status="fixpoint" if content.was_reduced else "budget", oracle_runs=0, cache_hits=0,
        seconds=0.0, started_ns=0,
    )  # fmt: skip
    writer.add(
        "findings", kind="shared", case_digest=case.digest, signature_digest="",
        environment_digest="", document={"needed": list(content.needed)}, time_ns=0,
    )  # fmt: skip

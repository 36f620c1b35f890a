"""A writer of rows that takes out what is nobody's business, in front of the one that writes.

Lives here: `RedactingWriter`, the one place on the way to a store where redaction is applied, to
the text of every column and blob.  Not here: what is taken out (`redactor`, `strict`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchreel.recorder.redaction.level import PATH
from torchreel.recorder.redaction.redactor import Redactor
from torchreel.store.configs import ConfigEntry
from torchreel.store.documents.jsontypes import json_text, parse_json

if TYPE_CHECKING:
    from torchreel.recorder.event_log.rows import AnyWriter

_AS_THEY_ARE = frozenset(
    {
        "digest", "codec", "kind", "kinds", "stage", "status", "partition", "entry", "run",
        "signature_digest", "payload", "frame_source", "traceback", "text_digest", "backend",
        "compile_id", "target", "failure_class", "exit_signal",
    }
)  # fmt: skip
"""Columns of fixed words, digests, names of functions, and packed bytes."""


class RedactingWriter:
    """A writer of rows in front of another one: nothing passes but through the redactor."""

    def __init__(self, writer: AnyWriter, redactor: Redactor) -> None:
        self.connection: Any = writer.connection
        self._writer = writer
        self._redactor = redactor

    def blob(self, data: bytes) -> str:
        """See `store.writer.Writer`, here and below."""
        return self._writer.blob(self._redactor.data(data))

    def add(self, table_name: str, **columns: object) -> int:
        return self._writer.add(table_name, **self._columns(columns))

    def add_many(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> None:
        self._writer.add_many(table_name, [self._columns(row) for row in rows])

    def put(self, table_name: str, **columns: object) -> bool:
        return self._writer.put(table_name, **self._columns(columns))

    def update(self, table_name: str, id: int, **columns: object) -> None:
        self._writer.update(table_name, id, **self._columns(columns))

    def delete(self, table_name: str, id: int) -> None:
        self._writer.delete(table_name, id)

    def clear_losses(self, recording_id: int) -> None:
        self._writer.clear_losses(recording_id)

    def flush(self) -> None:
        self._writer.flush()

    def forget(self, digests: Iterable[str]) -> None:
        forget = getattr(self._writer, "forget", None)
        if forget is not None:
            forget(digests)

    def learn_from(self, file: str) -> None:
        """Learn the secrets that the source in a file names: they reach the disk no more."""
        self._redactor.learn_from(file)

    def without_secrets(self, text: str) -> str:
        """Return a text as it is but for secrets, before it is normalised."""
        return self._redactor.without_secrets(text)

    def config(self, entries: Sequence[ConfigEntry]) -> int:
        if self._redactor.is_strict:
            setting = self._redactor.strict.setting
            return self._writer.config(
                [entry._replace(value=setting(entry.module, entry.value)) for entry in entries]
            )
        redacted: Callable[[Any], str] = self._redactor.json
        return self._writer.config(
            [entry._replace(value=parse_json(redacted(entry.value))) for entry in entries]
        )

    def _columns(self, columns: Mapping[str, object]) -> dict[str, object]:
        found = {
            name: value if name in _AS_THEY_ARE else self._column(value)
            for name, value in columns.items()
        }
        if self._redactor.is_strict:
            found.update(_of_the_machine(found))
        return found

    def _column(self, value: object) -> object:
        if isinstance(value, str):
            return self._redactor.text(value)
        if isinstance(value, (dict, list, tuple)):
            return self._redactor.json(value)
        return value


def _of_the_machine(columns: Mapping[str, object]) -> dict[str, object]:
    """Redact, for the level `all`, the command line, the directory and environment variables.

    The columns hold no secret any more.
    """
    from torchreel.recorder.redaction import strict

    found: dict[str, object] = {}
    if isinstance(argv := columns.get("argv"), str):
        words: Any = parse_json(argv)
        found["argv"] = json_text(strict.arguments([str(word) for word in words]))
    if columns.get("cwd"):
        found["cwd"] = PATH.decode()
    key = columns.get("key")
    if "value" in columns and isinstance(key, str) and key.startswith("env:"):
        found["value"] = strict.variable(str(columns["value"]))
    return found

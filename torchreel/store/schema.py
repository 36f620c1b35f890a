"""The tables of a store, as SQLAlchemy Core metadata; `docs/schema.md` explains them to people.

Only columns live here: how rows are written is in `writer`, how they are read in `queries`, and how
an older store becomes this one in `migrations` (a test keeps the two in step). A new column also
needs a migration, its place in `schema.sql`, the number in `revision`, and the dataclass in
`records`. Times are
`time.time_ns()`. A digest names a row of `blobs`; digests are no foreign keys, because a blob may
be dropped to save space while the row that named it stays.
"""

import re
import signal
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeDecorator

from torchreel.store.documents.jsontypes import Json, json_text, parse_json
from torchreel.store.revision import REVISION


class SafeText(TypeDecorator[str]):
    """Text; bytes that no encoding explains (surrogates in a path) are stored escaped, and so is
    a NUL on a server."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return value
        if dialect.name == "postgresql" and "\0" in value:  # which a server's text can't hold
            value = value.replace("\0", "\\x00")
        if value.isascii():
            return value
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


class Unreadable:
    """Replaces the value of a column that can't be read, and holds the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class JsonText(TypeDecorator[Json]):
    """JSON as canonical text. A Python `str` that is bound is taken as JSON text already.

    The JSON `null` is read as None; so is a column without a value, where that is `optional`.
    """

    impl = Text
    cache_ok = True

    def __init__(self, *, optional: bool = False) -> None:
        super().__init__()
        self.optional = optional

    def process_bind_param(self, value: Json, dialect: Dialect) -> str | None:
        return value if value is None or isinstance(value, str) else json_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return the value, or an `Unreadable`: whoever has the row says which one it is."""
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            return Unreadable(f"is {'null' if value is None else f'{value!r:.60}'}, and no JSON")
        try:
            return parse_json(value)
        except ValueError as error:
            return Unreadable(f"is {value!r:.60}, which is no JSON: {error!s:.100}")


class SignalName(TypeDecorator[str]):
    """The name of a signal, 'SIGSEGV'; its number, or the negative one of `Popen`, is accepted."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | int | None, dialect: Dialect) -> str | None:
        if not isinstance(value, int):
            return value
        try:
            return signal.Signals(abs(value)).name
        except ValueError:
            return f"signal {abs(value)}"


metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number.  SQLite has 64 bits for each, and an `Integer` as primary key is its rowid."""


def stored_as(kind: object) -> object:
    """Return the database's own type of a column whose type is `kind`."""
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind


def _id() -> Column[int]:
    return Column("id", _NUMBER, primary_key=True)


def _ref(
    name: str, target: str, *, optional: bool = False, keep: bool = False, index: bool = True
) -> Column[int]:
    """Return a foreign key; rows that refer to a deleted one go with it, or are kept with a
    null.
    """
    rule = "SET NULL" if keep else "CASCADE"
    key = ForeignKey(f"{target}.id", ondelete=rule)
    return Column(name, _NUMBER, key, nullable=optional or keep, index=index)


def _text(name: str, *, optional: bool = False) -> Column[str]:
    return Column(name, SafeText, nullable=optional)


def _json(name: str, *, optional: bool = False) -> Column[Json]:
    return Column(name, JsonText(optional=optional), nullable=optional)


def _int(name: str, *, optional: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=optional)


recordings = Table(
    "recordings",
    metadata,
    _id(),
    _text("run"),
    _text("kind"),
    # a compile; no foreign key, because compiles refer to recordings already
    Column("replay_of", _NUMBER),
    _text("entry", optional=True),
    _int("pid"),
    _int("rank", optional=True),
    _json("argv"),
    _text("cwd"),
    _int("started_ns"),
    _int("ended_ns", optional=True),
    _int("exit_status", optional=True),
    Column("exit_signal", SignalName),
    _text("status"),
)

environment = Table(
    "environment",
    metadata,
    Column(
        "recording_id", _NUMBER, ForeignKey("recordings.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("key", SafeText, primary_key=True),
    _text("value"),
    sqlite_with_rowid=False,
)

lost = Table(
    "lost",
    metadata,
    Column(
        "recording_id", _NUMBER, ForeignKey("recordings.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("reason", SafeText, primary_key=True),
    Column("place", SafeText, primary_key=True),
    _int("count"),
    _text("message"),
    sqlite_with_rowid=False,
)

configs = Table("configs", metadata, _id(), Column("digest", Text, nullable=False, unique=True))

config_entries = Table(
    "config_entries",
    metadata,
    Column("config_id", _NUMBER, ForeignKey("configs.id", ondelete="CASCADE"), primary_key=True),
    Column("module", SafeText, primary_key=True),
    Column("key", SafeText, primary_key=True),
    _json("value"),
    Column("portable", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

compiles = Table(
    "compiles",
    metadata,
    _id(),
    _ref("recording_id", "recordings", index=False),
    _text("compile_id"),
    _int("frame_id", optional=True),
    _int("frame_compile_id", optional=True),
    _int("attempt"),
    _text("frame_name"),
    _text("frame_file"),
    _int("frame_line"),
    _text("frame_source", optional=True),
    _text("backend", optional=True),
    _ref("config_id", "configs", keep=True, index=False),
    _text("status"),
    _int("started_ns"),
    _int("ended_ns", optional=True),
    Column("generation", _NUMBER, nullable=False, server_default="0"),
)

stages = Table(
    "stages",
    metadata,
    _id(),
    _ref("compile_id", "compiles"),
    _text("stage"),
    _text("partition"),
    _int("started_ns"),
    _int("ended_ns", optional=True),
    _text("status"),
)

events = Table(
    "events",
    metadata,
    _id(),
    # no index of its own: the unique constraint below begins with it
    Column(
        "recording_id", _NUMBER, ForeignKey("recordings.id", ondelete="CASCADE"), nullable=False
    ),
    _int("seq"),
    _ref("compile_id", "compiles", optional=True),
    _text("stage", optional=True),
    _text("kind"),
    _text("name"),
    _int("time_ns"),
    _json("data"),
    _text("payload", optional=True),
    # the event, by its seq, that this one is a part of
    _int("cause", optional=True),
    # the innermost frame, by its id in the stack_pages of the same recording
    Column("stack", _NUMBER),
    UniqueConstraint("recording_id", "seq", name="one_event_per_position"),
)

event_pages = Table(
    "event_pages",
    metadata,
    _id(),
    _ref("recording_id", "recordings", index=False),
    _ref("compile_id", "compiles", optional=True),
    _int("first_seq"),
    _int("last_seq"),
    # of each page in the blob: [kind, number of events]; null for one that was deleted
    _json("kinds"),
    _text("digest"),
)

stack_pages = Table(
    "stack_pages",
    metadata,
    _id(),
    _ref("recording_id", "recordings", index=False),
    _text("digest"),
)

graphs = Table(
    "graphs",
    metadata,
    _id(),
    _ref("compile_id", "compiles"),
    _text("stage"),
    _text("partition"),
    _int("ordinal"),
    _int("nodes"),
    _int("call_nodes"),
    _int("inputs"),
    _int("outputs"),
    _text("digest"),
    _text("text_digest", optional=True),
)

graph_targets = Table(
    "graph_targets",
    metadata,
    Column("graph_id", _NUMBER, ForeignKey("graphs.id", ondelete="CASCADE"), primary_key=True),
    Column("depth", _NUMBER, primary_key=True),
    Column("target", SafeText, primary_key=True),
    _int("count"),
    sqlite_with_rowid=False,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    _id(),
    _ref("compile_id", "compiles"),
    _text("entry"),
    _text("partition"),
    _int("ordinal"),
    _text("digest"),
    _ref("graph_id", "graphs", keep=True, index=False),
)

frame_bundles = Table(
    "frame_bundles",
    metadata,
    _id(),
    _ref("compile_id", "compiles", index=False),
    _text("status"),
    _text("reason"),
    _int("size"),
    _text("digest", optional=True),
    _text("tensors", optional=True),
)

output_codes = Table(
    "output_codes",
    metadata,
    _id(),
    _ref("compile_id", "compiles", index=False),
    _text("partition"),
    _int("ordinal"),
    _text("digest"),
)

failures = Table(
    "failures",
    metadata,
    _id(),
    _ref("recording_id", "recordings", index=False),
    _ref("compile_id", "compiles", optional=True, index=False),
    _text("stage"),
    _text("partition"),
    _text("failure_class"),
    _text("exception_type"),
    _text("message"),
    _json("chain"),
    _text("traceback", optional=True),
    _json("signature"),
    Column("signature_digest", Text, nullable=False),
    _ref("checkpoint_id", "checkpoints", keep=True, index=False),
    _int("time_ns"),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("codec", Text, nullable=False),
    _int("size"),
    Column("data", LargeBinary, nullable=False),
    # of a blob that is kept with others: the row of `packs`, and where it begins in there
    Column("pack", _NUMBER),
    Column("start", BigInteger),
    sqlite_with_rowid=False,
)

packs = Table(
    "packs",
    metadata,
    _id(),
    _int("size"),
    Column("data", LargeBinary, nullable=False),
    # of a pack that was written in parts: the row where it begins; null in that row
    Column("first", _NUMBER),
    # what both sides know before a pack begins (`dictionaries`)
    Column("dictionary", _NUMBER),
)

cases = Table(
    "cases",
    metadata,
    Column("digest", Text, primary_key=True),
    _ref("failure_id", "failures", keep=True, index=False),
    _int("call_nodes"),
    _text("document"),
    sqlite_with_rowid=False,
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("case_digest", Text, primary_key=True),
    Column("signature_digest", Text, primary_key=True),
    Column("environment_digest", Text, primary_key=True),
    _text("verdict"),
    _json("observed", optional=True),
    Column("seconds", Float, nullable=False),
    sqlite_with_rowid=False,
)

reductions = Table(
    "reductions",
    metadata,
    _id(),
    _ref("failure_id", "failures", keep=True, index=False),
    _text("start_case"),
    _text("best_case"),
    _text("status"),
    _int("oracle_runs"),
    _int("cache_hits"),
    Column("seconds", Float, nullable=False),
    _int("started_ns"),
)

by_catch = Table(
    "by_catch",
    metadata,
    _id(),
    _ref("reduction_id", "reductions", index=False),
    _text("signature_digest"),
    _json("signature"),
    _text("case_digest"),
)

findings = Table(
    "findings",
    metadata,
    _id(),
    _text("kind"),
    Column("case_digest", Text, nullable=False),
    _text("signature_digest"),
    _text("environment_digest"),
    _json("document"),
    _int("time_ns"),
)

replays = Table(
    "replays",
    metadata,
    _id(),
    _ref("compile_id", "compiles", index=False),
    _ref("recording_id", "recordings", keep=True, index=False),
    _text("entry"),
    _text("verdict"),
    _json("compared"),
    _text("detail"),
)

origins = Table(
    "origins",
    metadata,
    Column("digest", Text, primary_key=True),
    _text("kind"),
    _ref("recording_id", "recordings", keep=True, index=False),
    # in the table of its kind
    _int("row_id"),
    _int("pushed_ns"),
    sqlite_with_rowid=False,
)

kinds = Table(
    "kinds",
    metadata,
    Column("digest", Text, primary_key=True),
    _json("document"),
    sqlite_with_rowid=False,
)

failure_kinds = Table(
    "failure_kinds",
    metadata,
    Column("failure_id", _NUMBER, ForeignKey("failures.id", ondelete="CASCADE"), primary_key=True),
    # of the comparison that made it (`torchreel.analysis.triage.failure_kinds`)
    _int("rules"),
    # a digest of `kinds`; null where the failure does not count
    Column("kind", Text, nullable=True),
    # no foreign key: what follows repeats other tables, so that many are told apart without a join
    _int("recording_id"),
    # of the address, what follows the recording
    _text("place"),
    _int("time_ns"),
    _text("run"),
    _int("pid"),
    _int("started_ns"),
    _int("rank", optional=True),
    _text("torch"),
    sqlite_with_rowid=False,
)

OF_A_RECORDING = (
    environment, lost, compiles, stages, events, event_pages, stack_pages, graphs, graph_targets,
    checkpoints, frame_bundles, output_codes,
)  # fmt: skip
"""The tables of which a recording consists, each after those that it refers to.

Not its failures, which a reduction may add to.
"""

COMPUTED = (
    replays, cases, verdicts, reductions, by_catch, findings, origins, kinds, failure_kinds
)  # fmt: skip
"""Tables of what is computed from recordings, and of where they were pushed from.  A file gets them
with the first such row: most files never have one, and each table takes a page and a row of the
schema."""

Index("compiles_by_name", compiles.c.recording_id, compiles.c.compile_id)


PUSHED_TO = "pushed_to"
"""In the `info` of an index: only a store that others push to has it."""


def indexes_of_pushes() -> list[Index]:
    """Return the indexes that a server always has, and a file from the first push to it on."""
    indexes = (index for table in metadata.sorted_tables for index in table.indexes)
    return sorted((index for index in indexes if PUSHED_TO in index.info), key=_name_of)


def _name_of(index: Index) -> str:
    return str(index.name)


def _when_pushed_to(column: Column[Any], *more: Column[Any]) -> None:
    """Declare an index of a store that others push to.

    The table of another file is read through as fast, and an index takes a page of the file and a
    row of its schema even when there is nothing in it.
    """
    table = column.table
    name = f"ix_{table.name}_{column.name}"
    index = Index(name, column, *more, info={PUSHED_TO: True})
    index.ddl_if(dialect="postgresql")


for _column in (
    recordings.c.replay_of, compiles.c.config_id, compiles.c.recording_id,
    event_pages.c.recording_id, stack_pages.c.recording_id, frame_bundles.c.compile_id,
    output_codes.c.compile_id, failures.c.recording_id, failures.c.compile_id,
    failures.c.signature_digest, failures.c.checkpoint_id, checkpoints.c.graph_id,
    replays.c.compile_id, replays.c.recording_id, cases.c.failure_id, reductions.c.failure_id,
    by_catch.c.reduction_id, findings.c.case_digest, origins.c.recording_id,
):  # fmt: skip
    _when_pushed_to(_column)
# With the rules in it, kinds are counted from the index alone.
_when_pushed_to(failure_kinds.c.kind, failure_kinds.c.rules)


def sql() -> str:
    """Return the schema of a new file, as SQLite's SQL: what `schema.sql` holds.

    Without spaces where they mean nothing: SQLite keeps this text in every file.
    """
    dialect = sqlite.dialect()
    statements: list[ExecutableDDLElement] = []
    for table in metadata.sorted_tables:
        if table in COMPUTED:
            continue
        statements.append(CreateTable(table))
        here = (index for index in table.indexes if PUSHED_TO not in index.info)
        statements += map(CreateIndex, sorted(here, key=_name_of))
    lines = [_narrow(str(statement.compile(dialect=dialect))) + ";\n" for statement in statements]
    return f"{_SQL_HEAD}\n{''.join(lines)}\n{_STAMP}"


def _narrow(statement: str) -> str:
    narrow = re.sub(r"\s*([(),])\s*", r"\1", re.sub(r"\s+", " ", statement.strip()))
    # SQLAlchemy, which reads the keys from this text, looks for a space there
    return narrow.replace(")REFERENCES ", ") REFERENCES ")


_SQL_HEAD = """-- A new store, as SQLite makes it; `.schema --indent` prints it in sqlite3's shell.
-- Made by `python -m torchreel.store.schema`, from the tables there; a test holds it to them.
"""
_STAMP = f"""CREATE TABLE alembic_version(version_num VARCHAR(32)NOT NULL PRIMARY KEY)WITHOUT ROWID;

INSERT INTO alembic_version VALUES ('{REVISION}');
"""

if __name__ == "__main__":
    print(sql(), end="")

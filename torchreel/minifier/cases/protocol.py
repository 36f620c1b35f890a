"""The protocol that every case follows, and the way from a document to its case.

There are two kinds: a graph with its inputs (`case.Case`), and the source of a program
(`source_case.SourceCase`). Not here: which of two cases is simpler (`order`), the passes of a kind
(`search.failure_search`), what runs it (`oracle.child`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.store.documents.jsontypes import Json, parse_json

Key = tuple[int | str, ...]
"""The place of a case in the order (`order.sort_key`)."""


class AnyCase(Protocol):
    """A case of any kind: immutable, hashable by `digest`."""

    @property
    def kind(self) -> str:
        """Return the kind of the case: 'graph' or 'source'."""

    @property
    def digest(self) -> str:
        """Return the sha256 that identifies the case; equal cases have the same."""

    @property
    def repeats(self) -> int:
        """Return the number of runs after which the case counts as not failing."""

    @property
    def eager(self) -> bool:
        """Return True if eager has to accept it."""

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the modules that the user allowed to import."""

    @property
    def call_nodes(self) -> int:
        """Return its size, counted in `unit`."""

    @property
    def total_call_nodes(self) -> int:
        """Return its size in `unit`, with nested graphs or blocks included."""

    @property
    def unit(self) -> str:
        """Return the unit in which `call_nodes` counts: 'call node', 'statement'."""

    @property
    def is_part(self) -> bool:
        """Return True if it is one partition alone, which has no parts."""

    @property
    def is_code(self) -> bool:
        """Return True if a run of it runs Python code that is in the document."""

    @property
    def summary(self) -> str:
        """Return the case in a few words, for a message."""

    def repeating(self, times: int) -> AnyCase:
        """Return the case with another `repeats`."""

    def refreshed(self, values: Mapping[str, Json]) -> AnyCase:
        """Return the case with the values that a run computed; its digest stays the same."""

    def with_imports(self, imports: tuple[str, ...]) -> AnyCase:
        """Return the case with other modules to import."""

    def trivial(self) -> AnyCase | None:
        """Return the case with nothing in it that could fail; None when it is that already."""

    def to_json(self) -> dict[str, Json]:
        """Return the complete case as data; `case_from_json` undoes it."""

    def to_bytes(self) -> bytes:
        """Return the document that the store keeps."""


_CLASSES: Mapping[str, type[Case] | type[SourceCase]] = {"graph": Case, "source": SourceCase}
"""The class of a case, by the kind that a document names."""


def case_from_json(data: Json) -> AnyCase:
    """Read a case from the data of `to_json`.  Raises `UnsupportedError` for an unknown kind."""
    kind = _kind(data)
    if kind not in _CLASSES:
        raise UnsupportedError(f"the document is a case of a kind that is not known: {kind!r:.40}")
    return _CLASSES[kind].from_json(data)


def case_from_bytes(data: bytes) -> AnyCase:
    """Read a case from a document of `to_bytes`, without modules to import.

    A store may not say what is imported.  Raises `UnsupportedError` when it is malformed.
    """
    try:
        document = parse_json(data)
    except ValueError as error:
        raise UnsupportedError(f"the document of a case is not JSON: {error}") from error
    case = case_from_json(document)
    if isinstance(case, Case):
        case.checkpoint.check()
    return case.with_imports(())


def _kind(data: Json) -> str:
    return str(data.get("kind", "graph")) if isinstance(data, Mapping) else ""

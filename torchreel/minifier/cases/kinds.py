"""What a case is to those who don't look into it: the search, its memory, its processes.

There are two kinds: a graph with its inputs (`case.Case`), and the source of a program
(`source_case.SourceCase`). Lives here: what both have in common, and the way from a document to
its case. Not here: which of two cases is simpler (`order`), the passes of a kind (`search.phases`),
what runs it (`oracle.child`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torchreel.errors import UnsupportedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.store.jsontypes import Json, parse_json

Key = tuple[int | str, ...]
"""The place of a case in the order (`order.sort_key`)."""


class AnyCase(Protocol):
    """A case of any kind: immutable, hashable by `digest`."""

    @property
    def kind(self) -> str:
        """Which kind it is: 'graph' or 'source'."""

    @property
    def digest(self) -> str:
        """The sha256 of what makes it this case."""

    @property
    def repeats(self) -> int:
        """How often to run it before believing that it does not fail."""

    @property
    def eager(self) -> bool:
        """Whether eager has to accept it."""

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that the user allowed to import."""

    @property
    def call_nodes(self) -> int:
        """Its size as a person is told it, counted in `unit`."""

    @property
    def total_call_nodes(self) -> int:
        """The same with what is nested in it."""

    @property
    def unit(self) -> str:
        """What `call_nodes` counts: 'call node', 'statement'."""

    @property
    def is_part(self) -> bool:
        """Whether it is one partition alone, which has no parts of its own."""

    @property
    def is_code(self) -> bool:
        """Whether to run it runs Python code that is in the document."""

    @property
    def summary(self) -> str:
        """The case in a few words, for a message."""

    def repeating(self, times: int) -> AnyCase:
        """The case with another `repeats`."""

    def refreshed(self, values: Mapping[str, Json]) -> AnyCase:
        """The case with what a run computed of it (the same case, by its digest)."""

    def with_imports(self, imports: tuple[str, ...]) -> AnyCase:
        """The case with other modules to import."""

    def trivial(self) -> AnyCase | None:
        """The case with nothing in it that could fail; None when it is that already."""

    def to_json(self) -> dict[str, Json]:
        """The complete case as data; `case_from_json` undoes it."""

    def to_bytes(self) -> bytes:
        """The document that the store keeps."""


_CLASSES: Mapping[str, type[Case] | type[SourceCase]] = {"graph": Case, "source": SourceCase}
"""The class of a case, by the kind that a document names."""


def case_from_json(data: Json) -> AnyCase:
    """What `to_json` gave.  Raises `UnsupportedError` for a kind that is not known."""
    kind = _kind(data)
    if kind not in _CLASSES:
        raise UnsupportedError(f"the document is a case of a kind that is not known: {kind!r:.40}")
    return _CLASSES[kind].from_json(data)


def case_from_bytes(data: bytes) -> AnyCase:
    """What `to_bytes` wrote, less the modules to import: a store may not say what is imported."""
    return case_from_json(parse_json(data)).with_imports(())


def _kind(data: Json) -> str:
    return str(data.get("kind", "graph")) if isinstance(data, Mapping) else ""

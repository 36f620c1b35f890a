"""`audit`: what a store or a bundle holds that should not leave, by place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchreel.errors import DamagedStore
from torchreel.sharing.audit import rules
from torchreel.sharing.audit.finding_kinds import kind_of
from torchreel.sharing.audit.leftovers import leftovers
from torchreel.sharing.audit.walk import Leaf, leaves
from torchreel.store import Store
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.files.sqlite_files import path_of
from torchreel.store.passwords import hidden

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_FLOATS = re.compile(r'Float\("([^"]*)"')
_RUN = re.compile(r"[A-Za-z_]\w{3,}")


@dataclass(frozen=True)
class AuditFinding:
    """A value that no rule lets leave."""

    kind: str
    place: str
    """The table and column or the blob, and the keys that lead to it."""
    text: str


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit."""

    target: str
    findings: tuple[AuditFinding, ...]
    values: int
    """The number of values that were looked at: a file of which none was read is not clean."""
    declared: tuple[str, ...]
    """Numbers of which a bundle says that its failure needs them."""

    @property
    def is_clean(self) -> bool:
        """Return True if nothing was found."""
        return not self.findings


def audit(target: str | Path) -> AuditReport:
    """Look at everything in a store, its blobs unpacked, and at the space it does not use.

    Raises StoreError where it can't be read.
    """
    target = hidden(str(target))
    with Store.open(target) as store:
        declared = _declared(store)
        found: dict[AuditFinding, None] = {}
        count = 0
        for leaf in leaves(store):
            count += 1
            if not rules.allows(leaf, declared):
                found[_finding(leaf)] = None
    path = path_of(str(target))
    if path is not None and path.is_file():
        found |= dict.fromkeys(_left(path))
    if count == 0:
        raise DamagedStore(f"{target} holds nothing that could be looked at.")
    return AuditReport(str(target), tuple(found), count, tuple(sorted(declared)))


def _finding(leaf: Leaf) -> AuditFinding:
    return AuditFinding(kind_of(leaf), _spelled(leaf), str(_readable(leaf)))


def _readable(leaf: Leaf) -> object:
    """Return a number as a person writes it; of an expression, those in it."""
    if isinstance(leaf.value, str) and (quoted := _FLOATS.findall(leaf.value)):
        return ", ".join(repr(rules.float_of(text)) for text in quoted)
    if leaf.place[-1] in ("f", "c") and isinstance(leaf.value, str):
        try:
            return repr(float.fromhex(leaf.value))
        except (ValueError, OverflowError):
            return leaf.value
    return leaf.value


def _spelled(leaf: Leaf) -> str:
    place = leaf.place
    first = f"{place[0]} {place[1]}" if place[0] == "blob" else ".".join(place[:2])
    rest = ".".join(step for step in place[2:] if not step.startswith("<"))
    return ": ".join(filter(None, [first, rest, leaf.row]))


def _left(path: Path) -> Iterator[AuditFinding]:
    for place, text in leftovers(path):
        if rules.is_of_schema(text):
            continue
        words = [word for word in _RUN.findall(text) if rules.unknown_words(word)]
        if words or not text.isascii() or rules.has_long_number(text):
            yield AuditFinding("left over", place, text)


def _declared(store: Store) -> frozenset[str]:
    """Return the numbers that a bundle says its failure needs; no store but a bundle says so."""
    from sqlalchemy import select

    from torchreel.store import schema

    table = schema.findings.c
    needed: set[str] = set()
    for row in store.rows(select(table.document).where(table.kind == "shared")):
        items = list_only(as_object(row.document).get("needed"))
        needed |= {item for item in items if isinstance(item, str) and _NUMBER.fullmatch(item)}
    return frozenset(needed)

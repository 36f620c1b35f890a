"""Settings that are not the default: config entries, options of the compile, ambient state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.minifier.cases.case import Case
from torchreel.minifier.passes.base import CaseEdit, CasePass
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


@dataclass(frozen=True)
class DropEntry(CaseEdit):
    """One config entry has its default."""

    name: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the entry."""
        doc = case.checkpoint
        kept = tuple(entry for entry in doc.config if entry_name(entry) != self.name)
        return replace(case, checkpoint=replace(doc, config=kept))


@dataclass(frozen=True)
class DropOption(CaseEdit):
    """One option of `torch.compile(options=...)` is not given."""

    name: str

    def on(self, case: Case) -> Case | None:
        """Return the case without the option."""
        doc = case.checkpoint
        options = as_list(doc.extra.get("options"))
        kept = [option for option in options if entry_name(option) != self.name]
        return replace(case, checkpoint=replace(doc, extra={**doc.extra, "options": kept}))


@dataclass(frozen=True)
class DropAmbient(CaseEdit):
    """One piece of ambient state is whatever a fresh process has."""

    name: str

    def on(self, case: Case) -> Case | None:
        """Return the case without it."""
        doc = case.checkpoint
        kept = {name: value for name, value in doc.ambient.items() if name != self.name}
        return replace(case, checkpoint=replace(doc, ambient=kept))


class DropConfigEntries(CasePass):
    """Drop config entries and options."""

    name = "config"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each entry and option."""
        options = as_list(case.checkpoint.extra.get("options"))
        entries: list[CaseEdit] = [DropEntry(entry_name(e)) for e in case.checkpoint.config]
        return entries + [DropOption(entry_name(option)) for option in options]


class Ambient(CasePass):
    """Drop ambient state."""

    name = "ambient state"
    together = True

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose one edit for each piece."""
        return [DropAmbient(name) for name in sorted(case.checkpoint.ambient)]


def entry_name(entry: Json) -> str:
    """Return the full name of an entry, as 'inductor.max_fusion_size'."""
    fields = as_object(entry)
    return f"{fields.get('module')}.{fields.get('key')}"

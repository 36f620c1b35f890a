"""The verdict of a replay.

Lives here: `Verdict`, and what it rests on.  Not here: how they come about (`compiles`, `replay`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.store.documents.jsontypes import Json

IDENTICAL, DIVERGED, REFUSED = "identical", "diverged", "refused"
UNCHANGED, CHANGED = "unchanged", "changed"
"""Of a replay with something changed (`what_if`)."""


_UP_TO = (IDENTICAL, UNCHANGED)


@dataclass(frozen=True)
class Comparison:
    """One kind of thing at one stage: the number on each side, and the number of equal ones."""

    stage: str
    partition: str
    kind: str
    recorded: int
    replayed: int
    identical: int

    @property
    def agrees(self) -> bool:
        """Return True if nothing is missing, new or different."""
        return self.recorded == self.replayed == self.identical

    def to_json(self) -> Json:
        """Return it as data, for the `replays` table."""
        return {
            "stage": self.stage, "partition": self.partition, "kind": self.kind,
            "recorded": self.recorded, "replayed": self.replayed, "identical": self.identical,
        }  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """The first event in which two event logs part, or where one of them ends."""

    seq: int | None
    """Of the recorded event; None when the recorded event log ends here."""
    replayed_seq: int | None
    stage: str
    partition: str
    recorded: str
    """Its kind and name."""
    replayed: str
    number: int
    """Its place among the events that are compared, from 1."""
    before: tuple[tuple[int, str], ...]
    """The last events that both have: position in the recorded event log, kind and name."""
    difference: str
    """Both events side by side."""

    def __str__(self) -> str:
        where = f"in stage {self.stage}" + (f" ({self.partition})" if self.partition else "")
        if self.seq is None:
            return f"after the last recorded event {where}: the replay goes on with {self.replayed}"
        if self.replayed_seq is None:
            return f"at event {self.seq} {where}: {self.recorded} recorded, nothing replayed"
        if self.recorded == self.replayed:
            return f"at event {self.seq} {where}: {self.recorded}"
        return f"at event {self.seq} {where}: {self.recorded} recorded, {self.replayed} replayed"

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "seq": self.seq, "replayed_seq": self.replayed_seq, "stage": self.stage,
            "partition": self.partition, "recorded": self.recorded, "replayed": self.replayed,
            "number": self.number, "before": [list(item) for item in self.before],
            "difference": self.difference,
        }  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """The place where a replay stopped, in the recorded event log."""

    place: str
    """'stage lowering', 'event 417'."""
    seq: int | None = None
    """Of the last event that was replayed; None where there was none."""
    what: str = ""
    """Its kind and name."""
    details: tuple[str, ...] = ()
    """Its data, a line for each fact."""
    before: tuple[tuple[int, str], ...] = ()
    """The events before it: position in the recorded event log, kind and name."""

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "place": self.place, "seq": self.seq, "what": self.what,
            "details": list(self.details), "before": [list(item) for item in self.before],
        }  # fmt: skip


NOT_RESTORED = "config entry not restored: "
NOT_RECORDED = "not recorded: "
"""Prefixes of the notes of a verdict that name what the replay lacked."""


@dataclass(frozen=True)
class Verdict:
    """The result of a replay; `difference` shows the first one, `notes` what was set aside.

    `cause` is the likely reason of a divergence; '' if none is known.
    """

    verdict: str
    entry: str
    compared: tuple[Comparison, ...] = ()
    detail: str = ""
    difference: str = ""
    recording_id: int | None = None
    notes: tuple[str, ...] = ()
    divergence: Divergence | None = None
    cause: str = ""
    reached: Reached | None = None
    """The place where the replay was stopped: the verdict holds up to there."""

    @property
    def exit_status(self) -> int:
        """0 identical or unchanged, 1 diverged or changed, 3 refused."""
        return {IDENTICAL: 0, UNCHANGED: 0, DIVERGED: 1, CHANGED: 1}.get(self.verdict, 3)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the names of the things that the recorded compile had and the replay lacked."""
        prefixes = (NOT_RESTORED, NOT_RECORDED)
        return tuple(
            note.removeprefix(prefix)
            for note in self.notes
            for prefix in prefixes
            if note.startswith(prefix)
        )

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "verdict": self.verdict, "entry": self.entry, "detail": self.detail,
            "difference": self.difference, "cause": self.cause, "recording": self.recording_id,
            "notes": list(self.notes), "compared": [row.to_json() for row in self.compared],
            "divergence": None if self.divergence is None else self.divergence.to_json(),
            "reached": None if self.reached is None else self.reached.to_json(),
        }  # fmt: skip

    def __str__(self) -> str:
        up_to = f" up to {self.reached.place}" if self.reached is not None else ""
        ends = f": {self.detail}" if self.detail else ""
        return f"{self.verdict}{up_to if self.verdict in _UP_TO else ''}{ends}"


def stand_in_note(name: str) -> str:
    """Say that an operator was not defined in the process of a replay."""
    return f"{name} is not defined here: a stand-in answers what was recorded of it"

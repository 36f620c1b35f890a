"""What a replay concludes.

Lives here: `Verdict` and `Comparison`.  Not here: how they come about (`compare`, `replay`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.store.jsontypes import Json

IDENTICAL, DIVERGED, REFUSED = "identical", "diverged", "refused"


@dataclass(frozen=True)
class Comparison:
    """One kind of thing at one stage: how many there were on each side, how many are equal."""

    stage: str
    partition: str
    kind: str
    recorded: int
    replayed: int
    identical: int

    @property
    def agrees(self) -> bool:
        """Whether nothing is missing, new or different."""
        return self.recorded == self.replayed == self.identical

    def to_json(self) -> Json:
        """As data, for the `replays` table."""
        return {
            "stage": self.stage, "partition": self.partition, "kind": self.kind,
            "recorded": self.recorded, "replayed": self.replayed, "identical": self.identical,
        }  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The result of a replay; `difference` shows the first one, `notes` what was set aside."""

    verdict: str
    entry: str
    compared: tuple[Comparison, ...] = ()
    detail: str = ""
    difference: str = ""
    recording_id: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 identical, 1 diverged, 3 refused."""
        return {IDENTICAL: 0, DIVERGED: 1}.get(self.verdict, 3)

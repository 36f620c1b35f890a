"""The result of a diff, as data.

Lives here: the dataclasses and their JSON.  Not here: how they come about (the layers), printing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchreel.replay.compare.lanes import allowed_of
from torchreel.replay.compare.rules import FLIGHT
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Recording

ABSENT = ""
"""The text of a side that has nothing where the other has something."""


@dataclass(frozen=True)
class DiffSide:
    """A compile of a store."""

    store: Store
    compile: Compile

    @property
    def address(self) -> str:
        """Return the address, as one would type it."""
        return f"{self.store.target}#{self.compile.place}"

    @property
    def replayed_from(self) -> str | None:
        """The entry that it was replayed from; None when it is no replay."""
        recording = queries.recording(self.store, self.compile.recording_id)
        return recording.entry if recording.kind == "replay" else None

    @property
    def is_of_flight_mode(self) -> bool:
        """Return True if it was recorded in flight mode, which keeps less than the full mode."""
        return FLIGHT in allowed_of(self.store, self.compile)

    @property
    def is_summary(self) -> bool:
        """Return True if flight mode let go of its events: it was fast, and did not fail."""
        return self.is_of_flight_mode and not queries.event_counts(self.store, self.compile)

    def at(self, seq: int) -> str:
        """Return the address of an event of this compile."""
        return f"{self.address}@{seq}"


@dataclass(frozen=True)
class LayerDifference:
    """One place in which two sides part; `left_at` and `right_at` are addresses of events."""

    what: str
    left: str
    right: str
    left_at: str = ""
    right_at: str = ""
    before: tuple[str, ...] = ()
    """The entries that both sides have just before it, where there is an order."""

    def to_json(self) -> Json:
        """Return it as data."""
        return {**vars(self), "before": list(self.before)}


@dataclass(frozen=True)
class LayerDiff:
    """One layer: how many things each side has, and where they part, the first first."""

    layer: str
    left: int
    right: int
    differences: tuple[LayerDifference, ...] = ()
    note: str = ""
    """The parts that could not be compared, with the reason."""

    @property
    def compared(self) -> bool:
        """Return True if there was anything to compare."""
        return bool(self.left or self.right)

    def to_json(self) -> Json:
        """Return it as data."""
        found = [difference.to_json() for difference in self.differences]
        return {
            "layer": self.layer, "left": self.left, "right": self.right, "differences": found,
            "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class CompileDiff:
    """Two compiles that belong together."""

    left: DiffSide
    right: DiffSide
    layers: tuple[LayerDiff, ...]

    @property
    def differing(self) -> tuple[LayerDiff, ...]:
        """The layers in which they part."""
        return tuple(layer for layer in self.layers if layer.differences)

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "left": self.left.address, "right": self.right.address,
            "frame": self.left.compile.frame_name,
            "layers": [layer.to_json() for layer in self.layers],
        }  # fmt: skip


@dataclass(frozen=True)
class RecordingDiff:
    """Two recordings that belong together; `only_left` are compiles without a counterpart."""

    left: tuple[Store, Recording]
    right: tuple[Store, Recording]
    environment: LayerDiff | None
    compiles: tuple[CompileDiff, ...]
    only_left: tuple[DiffSide, ...] = ()
    only_right: tuple[DiffSide, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Return True if no difference was found."""
        environment = self.environment is None or not self.environment.differences
        alone = self.only_left or self.only_right
        return environment and not alone and not any(pair.differing for pair in self.compiles)

    @property
    def layers(self) -> Iterator[LayerDiff]:
        """Every layer of every compile, and the environment."""
        if self.environment is not None:
            yield self.environment
        for pair in self.compiles:
            yield from pair.layers

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "left": place(*self.left), "right": place(*self.right),
            "environment": None if self.environment is None else self.environment.to_json(),
            "compiles": [pair.to_json() for pair in self.compiles],
            "only_left": [side.address for side in self.only_left],
            "only_right": [side.address for side in self.only_right],
            "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True)
class DiffReport:
    """All that a diff found; `only_left` are addresses of recordings without a counterpart."""

    recordings: tuple[RecordingDiff, ...]
    only_left: tuple[str, ...] = ()
    only_right: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Return True if no difference was found."""
        alone = self.only_left or self.only_right
        return not alone and all(pair.same for pair in self.recordings)

    @property
    def exit_status(self) -> int:
        """0 no difference, 1 differences."""
        return 0 if self.same else 1

    def to_json(self) -> Json:
        """Return it as data."""
        return {
            "same": self.same,
            "recordings": [pair.to_json() for pair in self.recordings],
            "only_left": list(self.only_left),
            "only_right": list(self.only_right),
        }


def modes_differ(left: DiffSide, right: DiffSide) -> bool:
    """Return True if one of two compiles alone was recorded in flight mode."""
    return left.is_of_flight_mode != right.is_of_flight_mode


def place(store: Store, recording: Recording) -> str:
    """Return the address of a recording."""
    return f"{store.target}#{recording.id}"

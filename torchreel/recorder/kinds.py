"""Kinds of events: what each means, and its fields.

Lives here: `Kind`, the description that the probes declare beside themselves, and from which
`docs/events.md` is made (`catalogue`).  Not here: the kinds (each in the probe that notes them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torchreel.recorder.attach import AttachPoint


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of event.

    `system` is the row of the design's table of pipeline systems.  `fields` says what each value
    means, in the order in which `Recorder.note` takes them.  A kind that comes in hundreds, or
    with long values, is kept in `pages`; the others are rows that SQL can read.
    """

    name: str
    system: int
    meaning: str
    fields: Mapping[str, str] = field(default_factory=dict)
    points: tuple[AttachPoint, ...] = ()
    pages: bool = True
    exact: bool = False
    """Whether its values are text, whole numbers, truth values and nests of them: such a page is
    spelled several times faster, but floats and enums would be spelled wrongly."""
    probe: str = ""
    """The module that notes it, under `torchreel.recorder.probes`."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self.fields)

"""Kinds of events: what each means, and its fields.

Lives here: `Kind`, the description that the probes declare beside themselves, and from which
`docs/events.md` is made (`catalogue`).  Not here: the kinds (each in the probe that notes them).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torchreel.recorder.attach import AttachPoint


class Kind:
    """One kind of event.

    `system` is the row of the design's table of pipeline systems.  `fields` says what each value
    means, in the order in which `Recorder.note` takes them.  A kind that comes in hundreds, or
    with long values, is kept in `pages`; the others are rows that SQL can read.  `exact` says that
    its values are text, whole numbers, truth values and nests of them: such a page is spelled
    several times faster, but floats and enums would be spelled wrongly.  `probe` is the module that
    notes it, under `torchreel.recorder.probes`.  Nobody changes one (no dataclass: see `rows`).
    """

    def __init__(
        self,
        name: str,
        system: int,
        meaning: str,
        fields: Mapping[str, str] = MappingProxyType({}),
        points: tuple[AttachPoint, ...] = (),
        pages: bool = True,
        exact: bool = False,
        probe: str = "",
    ) -> None:
        self.name, self.system, self.meaning, self.fields = name, system, meaning, fields
        self.points, self.pages, self.exact, self.probe = points, pages, exact, probe
        self.columns = tuple(fields)
        """The names of the fields."""

"""The results of a repro under several releases of torch: plain data, kept in the store.

Lives here: the outcome of each release, and the first bad and the first fixed one. Not here: the
runs (`minifier.repro.releases`), their table (`commands.releases`). Read by the issue as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from torchreel.errors import DamagedStore
from torchreel.store.documents.jsontypes import Json
from torchreel.store.reading.typed import convert

State = Literal["same", "other", "passes", "unjudged"]
WORDS: Mapping[State, str] = {
    "same": "the same failure",
    "other": "another failure",
    "passes": "passes",
    "unjudged": "can't be judged",
}
NO_ENVIRONMENT = "there is no environment with it: --yes makes one"
"""The reason why a release was not run that nobody was asked, or allowed, to load."""
_PARTS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(.*?)(?:\+.*)?", re.DOTALL)


@dataclass(frozen=True)
class Run:
    """One run of the repro, in a fresh process."""

    state: State
    detail: str
    """The failure, or the reason why the run can't be judged."""


@dataclass(frozen=True)
class Tried:
    """One release, and all runs under it."""

    torch: str
    """The version."""
    runs: tuple[Run, ...] = ()
    reason: str = ""
    """The reason why there are no runs."""

    @property
    def telling(self) -> Run:
        """The run that decides: one with the failure, else one that can't be judged, and so on."""
        for state in ("same", "unjudged", "other"):
            for run in self.runs:
                if run.state == state:
                    return run
        return self.runs[0] if self.runs else Run("unjudged", self.reason)

    @property
    def state(self) -> State:
        """Return the state of the repro under this release."""
        return self.telling.state

    @property
    def shown(self) -> int:
        """In how many runs the failure was there."""
        return sum(run.state == "same" for run in self.runs)

    @property
    def result(self) -> str:
        """The state in words, with a count where the runs disagree."""
        flaky = self.state == "same" and self.shown < len(self.runs)
        times = f" in {self.shown} of {len(self.runs)} runs" if flaky else ""
        return WORDS[self.state] + times


Fate = Literal["fixed", "there", "other", "unjudged"]


@dataclass(frozen=True)
class Rechecked:
    """The fate of a failure under another torch."""

    new: Tried
    """The runs under that one."""
    here: Tried | None = None
    """Those under the torch that is installed here: asked only where the other one passes."""

    @property
    def state(self) -> Fate:
        """Fixed only if all runs pass, and the same script fails here."""
        match self.new.state:
            case "same":
                return "there"
            case "passes":
                is_shown = self.here is not None and self.here.state == "same"
                return "fixed" if is_shown else "unjudged"
        return self.new.state

    @property
    def detail(self) -> str:
        """The event, or the reason why nothing follows from it."""
        if self.state == "unjudged" and self.new.state == "passes" and self.here is not None:
            return (
                f"it passes, but with torch {self.here.torch}, which is installed here, it does "
                f"not fail either: {self.here.telling.detail}"
            )
        return self.new.telling.detail


@dataclass(frozen=True)
class Stretch:
    """Releases with the failure, none that passes among them, and those around them."""

    bad: tuple[str, ...]
    """The releases that show the failure."""
    good: str = ""
    """The last release before them that passes; '' for none."""
    fixed: str = ""
    """The first release after them that passes; '' for none."""
    unclear_before: tuple[str, ...] = ()
    """Releases between `good` and the first bad one, of which it is not known."""
    unclear_after: tuple[str, ...] = ()
    """Releases between the last bad one and `fixed`, of which it is not known."""

    def began(self) -> str:
        """Return the first bad release, as exactly as it is known."""
        if not self.good:
            return f"first bad: {self.bad[0]} or earlier (no earlier release that passes was tried)"
        if self.unclear_before:
            return (
                f"first bad: {self.bad[0]} or earlier, after {self.good}, which passes "
                f"({_unclear(self.unclear_before)})"
            )
        return f"first bad: {self.bad[0]} ({self.good} passes)"

    def ended(self) -> str:
        """Return the first fixed release, as exactly as it is known."""
        if self.fixed and self.unclear_after:
            return (
                f"first fixed: {self.fixed} or earlier, after {self.bad[-1]} "
                f"({_unclear(self.unclear_after)})"
            )
        if self.fixed:
            return f"first fixed: {self.fixed} ({self.bad[-1]} fails)"
        after = f" ({_unclear(self.unclear_after)})" if self.unclear_after else ""
        return f"not fixed up to {self.bad[-1]}{after}"


@dataclass(frozen=True)
class Survey:
    """A repro under several releases, the oldest first."""

    recorded: str
    """The version of torch that recorded the failure."""
    tried: tuple[Tried, ...]
    form: str = ""
    """The form of the script that was run."""

    @property
    def is_shown(self) -> bool:
        """Return True if a release shows the failure: else nothing follows from those that pass."""
        return any(tried.state == "same" for tried in self.tried)

    def stretches(self) -> tuple[Stretch, ...]:
        """Return each range of releases with the failure; more than one if it came back."""
        found: list[Stretch] = []
        good, unclear, bad = "", list[str](), list[str]()
        before: tuple[str, ...] = ()
        for tried in self.tried:
            if tried.state == "same":
                before = before if bad else tuple(unclear)
                bad, unclear = [*bad, tried.torch], []
            elif tried.state == "passes":
                if bad:
                    found.append(Stretch(tuple(bad), good, tried.torch, before, tuple(unclear)))
                good, unclear, bad = tried.torch, [], []
            else:
                unclear.append(tried.torch)
        if bad:
            found.append(Stretch(tuple(bad), good, "", before, tuple(unclear)))
        return tuple(found)

    def conclusions(self) -> list[str]:
        """Return the first bad and the first fixed release in words, for each range."""
        lines = [line for one in self.stretches() for line in (one.began(), one.ended())]
        if not lines:
            return ["no release that was tried shows the failure here, so nothing follows"]
        recording = next((one for one in self.tried if one.torch == self.recorded), None)
        if recording is not None and recording.state != "same":
            lines.append(f"torch {self.recorded}, which recorded it, does not show it here")
        return lines

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object; `from_json` undoes it."""
        fields = asdict(self)
        fields["tried"] = [
            {**asdict(one), "runs": [asdict(run) for run in one.runs]} for one in self.tried
        ]
        return fields

    @classmethod
    def from_json(cls, data: Json) -> Survey:
        """Return the survey of `to_json`.  Raises `DamagedStore` for anything else."""
        try:
            return convert(data, cls)
        except ValueError as error:
            raise DamagedStore(f"A stored result of releases is none: {error}.") from error


def order_of(version: str) -> tuple[int, int, int, bool, str]:
    """Return a key by which versions of torch sort: a build before a release comes before it."""
    match = _PARTS.fullmatch(version)
    if match is None:
        return (0, 0, 0, False, version)
    major, minor, patch, rest = match.groups(default="0")
    return (int(major), int(minor), int(patch), rest.startswith(".post") or not rest, rest)


def in_order(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """Sort releases, the oldest first."""
    return tuple(sorted(tried, key=lambda one: order_of(one.torch)))


def _unclear(versions: Sequence[str]) -> str:
    return f"not known of {', '.join(versions)}"

"""The result of a bisection: data that the store keeps and the reports read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from torchreel.errors import DamagedStore
from torchreel.minifier.bisect.steps import NONE, BisectStep, words
from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class StepResult:
    """One step that was taken, and what came of it."""

    step: BisectStep
    fails: bool
    """True if the failure was there."""
    verdict: str
    """The oracle's: same, other, none, invalid, unjudged."""
    detail: str = ""


@dataclass(frozen=True)
class Bisection:
    """The guilty component: as exactly as torch can name it."""

    backend: str
    """The first backend of the ladder that fails."""
    part: str = ""
    """The part of it without which the failure is gone, or the entry of the config that cures."""
    number: int | None = None
    """The application of the part with which the failure comes, counted from 0."""
    application: str = ""
    """The name of that application: a pass, an operator."""
    cure: str = ""
    """The smallest change of the config without the failure, as a line of Python."""
    tried: tuple[StepResult, ...] = ()
    call_nodes: int = 0
    """Call nodes of the case that was run."""
    reduced: bool = False
    """True if that was the result of a reduction."""
    runs: int = 0

    @property
    def passing(self) -> BisectStep | None:
        """Return the step nearest to the failure that passes: all but the guilty application."""
        if self.number is not None:
            return BisectStep(self.backend, self.part, self.number - 1)
        return self._part_step()

    @property
    def failing(self) -> BisectStep:
        """Return the step that does the least and fails."""
        if self.number is not None:
            return BisectStep(self.backend, self.part, self.number)
        return BisectStep(self.backend)

    def _part_step(self) -> BisectStep | None:
        if not self.part:
            return None
        if "=" in self.part:
            return BisectStep(self.backend, entry=self.part)
        return BisectStep(self.backend, self.part, NONE)

    def in_words(self) -> str:
        """Return the component in a line."""
        if not self.part:
            return _BACKENDS.get(self.backend, f"the backend {self.backend}")
        if "=" in self.part:
            return f"{self.backend}: gone with {self.part}"
        number = "" if self.number is None else f", number {self.number}"
        named = f": {self.application}" if self.application else ""
        return f"{self.backend}, {words(self.part)}{number}{named}"

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object; `from_json` undoes it."""
        fields = asdict(self)
        fields["tried"] = [{**asdict(item), "step": asdict(item.step)} for item in self.tried]
        return fields

    @classmethod
    def from_json(cls, data: Json) -> Bisection:
        """Read what `to_json` gave.  Raises `DamagedStore` for anything else."""
        try:
            return _from_json(data)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStore(f"A stored bisection is none: {error}.") from error


_BACKENDS = {
    "eager": "Dynamo (or eager itself): the graph that it made fails without any compiler",
    "aot_eager": "AOTAutograd: it fails without decompositions and without Inductor",
    "aot_eager_decomp_partition": "AOTAutograd's decompositions or partitioner, without Inductor",
    "inductor": "Inductor, and no single part of it that torch can leave out",
}


def _from_json(data: Json) -> Bisection:
    if not isinstance(data, Mapping):
        raise TypeError("no object")
    number = data["number"]
    return Bisection(
        backend=str(data["backend"]),
        part=str(data["part"]),
        number=None if number is None else int(str(number)),
        application=str(data["application"]),
        cure=str(data["cure"]),
        tried=tuple(_tried(item) for item in _list(data["tried"])),
        call_nodes=int(str(data["call_nodes"])),
        reduced=bool(data["reduced"]),
        runs=int(str(data["runs"])),
    )


def _list(data: Json) -> list[Json]:
    if not isinstance(data, list):
        raise TypeError("no list")
    return data


def _tried(data: Json) -> StepResult:
    if not isinstance(data, Mapping) or not isinstance(data["step"], Mapping):
        raise TypeError("no step")
    step = data["step"]
    return StepResult(
        BisectStep(
            str(step["backend"]), str(step["part"]), int(str(step["limit"])), str(step["entry"])
        ),
        bool(data["fails"]),
        str(data["verdict"]),
        str(data["detail"]),
    )

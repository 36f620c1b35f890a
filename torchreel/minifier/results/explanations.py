"""The explanation of a smallest case: data that the store keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from torchreel.errors import DamagedStore
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list

# People paste these lines.
_ENTRY = re.compile(
    r"torch\._(functorch|inductor|dynamo)\.config\.[\w.]+ = (True|False|\d+)", re.ASCII
)


@dataclass(frozen=True)
class Explanation:
    """Sentences about a case; each was found out by running it, changed in one thing."""

    workaround: tuple[str, ...] = ()
    """Lines of Python with which the case passes."""
    checked: bool = False
    """True if, with them, it also ran to its end and gave eager's results."""
    neighbour: str = ""
    """The smallest edit found with which the case passes: 'x is float32[1] instead of [2]'."""
    same: tuple[str, ...] = ()
    """The variations that do not matter: 'any floating dtype of x'."""
    runs: int = 0
    complete: bool = True
    """True if all variations were run; if not, the limit on runs was reached before."""

    def __bool__(self) -> bool:
        return bool(self.workaround or self.neighbour or self.same)

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object; `from_json` undoes it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Json) -> Explanation:
        """Read what `to_json` gave.  Raises `DamagedStore` for anything else."""
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise DamagedStore("A stored explanation is none.")
        workaround = _texts(data["workaround"])
        if not all(map(_ENTRY.fullmatch, workaround)):
            raise DamagedStore("A stored workaround is more than entries of torch's config.")
        return cls(
            workaround,
            data["checked"] is True,
            str(data["neighbour"]),
            _texts(data["same"]),
            int(str(data["runs"])) if str(data["runs"]).isdigit() else 0,
            data["complete"] is True,
        )


def _texts(data: Json) -> tuple[str, ...]:
    return tuple(map(str, as_list(data)))

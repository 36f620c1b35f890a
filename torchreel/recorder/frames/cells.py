"""Cells of closures in frame bundles: functions that shared a variable share it again.

cloudpickle gives each function cells of its own.  Dynamo traces a write to a cell as a side effect
that all who have it see, and knows an object by the first cell that it finds it in.

Lives here: what stands for a cell in a pickle, and what makes one while a bundle is loaded.  Not
here: the functions around it (`bundles`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any

from torchreel.formats.frames.parts import Opaque


def content(value: Any) -> Any:
    """Return an argument, taken out of its cell if an inner function uses it."""
    if not isinstance(value, CellType):
        return value
    try:
        return value.cell_contents
    except ValueError:
        return Opaque("cell", "it is empty")


@dataclass(frozen=True)
class EmptyCell:
    """Stands in a pickle for a cell without its content; `token` is the id of the cell."""

    token: int
    name: str


@dataclass
class Cells:
    """The cells of one pickle, each with what stands for it."""

    known: dict[int, tuple[CellType, EmptyCell]] = field(default_factory=dict)

    def of(self, function: FunctionType) -> tuple[EmptyCell, ...] | None:
        """Return what stands for the cells of a function; None if it has no closure."""
        if function.__closure__ is None:
            return None
        pairs = zip(function.__closure__, function.__code__.co_freevars, strict=True)
        return tuple(self._stand_in(cell, name) for cell, name in pairs)

    def reduced(self, cell: CellType) -> tuple[Any, ...]:
        """Return the reduce value of a cell: the empty one, and its content as a state."""
        empty = self._stand_in(cell, "")
        try:
            content = cell.cell_contents
        except ValueError:
            return itself, (empty,)
        return itself, (empty,), (content,), None, None, set_content

    def _stand_in(self, cell: CellType, name: str) -> EmptyCell:
        return self.known.setdefault(id(cell), (cell, EmptyCell(id(cell), name)))[1]


_made: dict[tuple[int, str], CellType] = {}
"""In a process that loads bundles: the cells so far, by token and the name of the variable."""


def made(token: int, name: str) -> CellType:
    """Return the cell of a token, which an earlier bundle may have made.

    A token is an id, and may have been reused: for another variable, mostly.
    """
    return _made.setdefault((token, name), CellType())


def itself(cell: CellType) -> CellType:
    """Return the cell: pickle sets the state of what a function returns."""
    return cell


def set_content(cell: CellType, state: tuple[object]) -> None:
    """Set the content of a cell, which may hold what refers to the cell."""
    (cell.cell_contents,) = state

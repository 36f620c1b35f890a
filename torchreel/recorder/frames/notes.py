"""Notes that are taken while a bundle is pickled: what is in it, and what is not.

Lives here: the collection.  Not here: the pickler that fills it (`pickler`), and what is made of it
(`bundles`, `redacted_pickles`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType

from torch._ops import OpOverload

from torchreel.errors import UnsupportedError
from torchreel.formats import namespaces
from torchreel.formats.frames.parts import Opaque
from torchreel.recorder.frames import places
from torchreel.store.documents.jsontypes import Json

MOST_REASONS = 20
LONGEST = 2.0
"""Seconds for a pickle, and for all that share its budget."""
MOST_OBJECTS = 1_000_000
"""Objects of a pickle, numbers and strings among them: each takes two bytes at least, and half a
microsecond."""


class BundleBudget:
    """The time and the objects that the pickles which share it may take."""

    def __init__(self, objects: int = MOST_OBJECTS, *, share: float = 1) -> None:
        self._left, self._seconds = objects, LONGEST * share
        self._ends = time.monotonic() + self._seconds

    def check(self, notes: Notes, objects: int = 1) -> None:
        """Take so many objects off; where nothing is left, note it and raise UnsupportedError."""
        self._left -= objects
        if self._left < 0:
            notes.stopped = "it has too many objects"
        elif time.monotonic() > self._ends:
            notes.stopped = f"it took longer than {self._seconds:g} s"
        else:
            return
        raise UnsupportedError(notes.stopped)


@dataclass
class Notes:
    """Notes that are taken while one pickle is made."""

    tensors: list[Json] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    budget: BundleBudget = field(default_factory=BundleBudget)
    stopped: str | None = None
    most_items: int | None = None
    """Items of a container; one with more is left out, and named."""
    files: set[str] = field(default_factory=set)
    """Files of the functions that are pickled by value."""
    pairs: set[tuple[str, str]] = field(default_factory=set)
    """Text in dictionaries (also globals and attributes) and cells, with its key."""
    variables: set[str] = field(default_factory=set)
    """Names of arguments and variables in that code: the code can't do without them."""
    constants: set[str] = field(default_factory=set)
    """Text that the code puts under the name of a secret."""
    names: set[str] = field(default_factory=set)
    """Names of globals and attributes in that code."""
    lines: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """By file: the first and the last line of each function that is pickled by value."""
    modules: set[str] = field(default_factory=set)
    """Modules that it refers to by name."""
    owners: dict[int, ModuleType | type | FunctionType] = field(default_factory=dict)
    """Modules, classes and functions that it refers to by name."""
    operators: dict[str, OpOverload] = field(default_factory=dict)
    """Operators outside of torch that are not of `torch.library.custom_op`, by name with overload:
    those in it, and those that its code may name."""
    scopes: set[int] = field(default_factory=set)
    """Dictionaries that stand for the globals of a module."""

    def add_code(self, code: CodeType) -> None:
        """Note the file, lines and names of the code of a function that is pickled by value."""
        self.files.add(code.co_filename)
        self.variables.update((*code.co_varnames, *code.co_freevars, *code.co_cellvars))
        self.names.update(code.co_names)
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        self.lines.setdefault(code.co_filename, set()).add((code.co_firstlineno, last))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.add_code(constant)

    def add_module(self, name: object) -> None:
        """Note a module that the bundle refers to by name."""
        if isinstance(name, str) and name.partition(".")[0] not in places.KNOWN_ANYWHERE:
            self.modules.add(name)

    def add_operators(self, found: Iterable[OpOverload]) -> None:
        """Note operators, of which a process without their library makes stand-ins."""
        kept = (one for one in found if namespaces.is_custom(f"op:{one}"))
        self.operators.update((str(one), one) for one in kept)

    def missing(self, what: str, reason: str) -> Opaque:
        """Note that something is not in the bundle; return its placeholder."""
        if f"{what}: {reason}" not in self.reasons:
            self.reasons.append(f"{what}: {reason}")
        return Opaque(what, reason)

    @property
    def is_too_large(self) -> bool:
        """Return True if it was stopped for what it is, not for how long it took."""
        return self.stopped is not None and self.stopped.startswith(("it is", "it has"))

    def reason(self) -> str:
        """Return in a line why the bundle is not complete; empty if it is."""
        more = len(self.reasons) - MOST_REASONS
        found = self.reasons[:MOST_REASONS] + ([f"and {more} more"] if more > 0 else [])
        return "; ".join(found)

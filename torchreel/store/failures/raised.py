"""An exception as data: what its signature is computed from.

Lives here: the chain of an exception, and the text and the frames of each of its members. Not
here: what makes two failures the same bug (`signature`). Needs the standard library alone: the
process of a repro loads this file by its path, under another torch and maybe another Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple


class Raised(NamedTuple):
    """One exception of a chain."""

    type_name: str
    bases: tuple[str, ...]
    """The names of the type and of all its bases."""
    text: str
    frames: tuple[tuple[str, str], ...]
    """Module and qualified name of each function, the outermost first."""
    implied: bool = False
    """True if only the implicit context of the one before leads to it."""


class Denial(NamedTuple):
    """The facts of an exception about a refused operation: they tell the denial of a sandbox."""

    type_name: str
    number: int | None
    """The `errno` of an OSError."""
    text: str


def raised_chain(exc: BaseException) -> list[Raised]:
    """Describe `exc` and what it was made from, the outermost first."""
    found = list(exception_chain(exc))
    return [
        _described(error, implied=before is not None and not _is_named(before, error))
        for before, error in zip([None, *found], found, strict=False)
    ]


def denials(exc: BaseException) -> list[Denial]:
    """Describe `exc` and everything it may have been made from."""
    return [_denial(error) for error in lineage(exc)]


def exception_chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield `exc` and what it was made from, the outermost first.

    Explicit links only. An implicit `__context__` is whatever the program happened to be handling;
    it is followed only where torch itself replaced an exception with `raise ... from None`.
    """
    seen: set[int] = set()
    error: BaseException | None = exc
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = _made_from(error)


def lineage(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and everything it may have been made from, implicit context included."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [found.__context__, found.__cause__, getattr(found, "inner_exception", None)]


def _made_from(error: BaseException) -> BaseException | None:
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException):
        return inner
    if error.__cause__ is not None:
        return error.__cause__
    replaced = error.__suppress_context__ and type(error).__module__.startswith("torch.")
    return error.__context__ if replaced else None


def _is_named(error: BaseException, source: BaseException) -> bool:
    """Return True if an exception says itself that it was made from another."""
    return error.__cause__ is source or getattr(error, "inner_exception", None) is source


def _described(error: BaseException, *, implied: bool) -> Raised:
    kind = type(error)
    bases = tuple(base.__name__ for base in kind.__mro__)
    return Raised(kind.__name__, bases, str(error), tuple(_frames(error.__traceback__)), implied)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, str]]:
    while traceback is not None:
        frame = traceback.tb_frame
        module, code = frame.f_globals.get("__name__"), frame.f_code
        # Before Python 3.11 code knows no more than its name.
        function = getattr(code, "co_qualname", code.co_name)
        yield (module if isinstance(module, str) else "", function)
        traceback = traceback.tb_next


def _denial(error: BaseException) -> Denial:
    number = error.errno if isinstance(error, OSError) else None
    return Denial(type(error).__name__, number, str(error))

"""An exception as data: what its signature is computed from.

Lives here: the chain of an exception, and the text and the frames of each of its members. Not
here: what makes two failures the same bug (`signature`). Needs the standard library alone: the
process of a repro loads this file by its path, under another torch and maybe another Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class Denial(NamedTuple):
    """The facts of an exception about a refused operation: they tell the denial of a sandbox."""

    type_name: str
    number: int | None
    """The `errno` of an OSError."""
    text: str


def raised_chain(exc: BaseException) -> list[Raised]:
    """Describe `exc` and what it was made from, the outermost first."""
    return [_described(error) for error in exception_chain(exc)]


_LONGEST_LINE = 200
_TARGET = "target: "


def in_one_line(chain: Sequence[Raised]) -> str:
    """Return the type of the outermost exception, and what tells it from others, in one line.

    Torch says "RuntimeError when making fake tensor call" of whatever an operator raised, and
    "AssertionError" of whatever a lowering asserts: the innermost exception says more, or else the
    operator and the function that it came from.
    """
    outer, inner = chain[0], chain[-1]
    said = _lines(outer)
    words, more = said[0], _lines(inner)[0]
    if more and more not in words:
        words = f"{words.rstrip(': ')}: {more}" if words else more
    elif not more:
        targets = [line for line in said if line.startswith(_TARGET)]
        places = [f"of {line.removeprefix(_TARGET)}" for line in targets[:1]]
        places += [f"in {name}" for _, name in inner.frames[-1:]]
        words = f"{words.rstrip(': ') or inner.type_name} {' '.join(places)}"
    elif words.endswith((":", "found")) and len(said) > 1:
        words = f"{words} {said[1]}"
    prefix = "" if words.startswith(outer.type_name) else f"{outer.type_name}: "
    line = f"{prefix}{words}".rstrip(": ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _lines(error: Raised) -> list[str]:
    return [line.strip() for line in error.text.strip().splitlines() if line.strip()] or [""]


def denials(exc: BaseException) -> list[Denial]:
    """Describe `exc` and everything it may have been made from."""
    return [_denial(error) for error in lineage(exc)]


def exception_chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield `exc` and what it was made from, the outermost first.

    An implicit `__context__` may be whatever the program happened to be handling: it is followed
    only where a function of torch caught it, and raised an exception of torch's in its place. That
    is so from the beginning, while `raise ... from None` may come later, on the way out of Dynamo.
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
    context = error.__context__
    replaced = type(error).__module__.startswith("torch.") and _is_caught_by_torch(context)
    return context if replaced else None


def _is_caught_by_torch(error: BaseException | None) -> bool:
    """Return True if the function that an exception came to is one of torch's."""
    if error is None or error.__traceback__ is None:
        return False
    module = error.__traceback__.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.startswith("torch.")


def _described(error: BaseException) -> Raised:
    kind = type(error)
    bases = tuple(base.__name__ for base in kind.__mro__)
    return Raised(kind.__name__, bases, str(error), tuple(_frames(error.__traceback__)))


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

"""Predicates: what makes a compile interesting when nothing fails, as in `guards > 40`.

    predicate  =  all {"or" all}
    all        =  one {"and" one}
    one        =  "not" one | "(" predicate ")" | NUMBER_NAME op NUMBER | TEXT_NAME match "REGEX"
    op         =  ">" | ">=" | "<" | "<=" | "==" | "!="
    match      =  "~" | "!~"

The names are those of `QUANTITIES`, a closed list; a number may end in K, M or G (powers of 1024),
ms or s. Nothing is evaluated but this grammar. Lives here: the grammar and what a predicate means,
given measurements. Not here: how they are taken in a child (`child.measures`)
and in a script (`scripts.measuring`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from torchreel.errors import UsageError


@dataclass(frozen=True)
class Quantity:
    """Something that can be measured of a compile."""

    kind: Literal["number", "text"]
    meaning: str
    code_is_enough: bool = False
    """True if it is known as soon as the code is generated, before any C++ is compiled."""


QUANTITIES: Mapping[str, Quantity] = {
    "compile_seconds": Quantity("number", "wall-clock seconds of the compile"),
    "cpu_seconds": Quantity("number", "seconds of processor time, of the C++ compiler as well"),
    "python_calls": Quantity(
        "number", "calls of functions in the compile, the same in every run", code_is_enough=True
    ),
    "memory": Quantity("number", "bytes of memory that the compile took at its peak"),
    "guards": Quantity("number", "guards on symbolic shapes", code_is_enough=True),
    "recompiles": Quantity(
        "number", "compiles after the first, when each size in turn becomes larger by one"
    ),
    "warnings": Quantity("number", "warnings, and log records of that level", code_is_enough=True),
    "warning": Quantity("text", "the texts of these, a line each", code_is_enough=True),
    "kernels": Quantity("number", "kernels that Inductor generated", code_is_enough=True),
    "code_lines": Quantity("number", "lines of generated code", code_is_enough=True),
    "code": Quantity("text", "the generated code", code_is_enough=True),
}
"""Everything that a predicate can speak of."""


@dataclass(frozen=True)
class AtLeast:
    """A measurement that was cut short."""

    number: float


Measured = float | str | AtLeast

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}
_TOKEN = re.compile(
    r"""\s*(?:(?P<op>>=|<=|==|!=|!~|[<>~()])|(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|[sKMG])?\b
    |(?P<word>[a-z_]+)|(?P<text>"(?:[^"\\]|\\.)*"))""",
    re.VERBOSE,
)


class Predicate(Protocol):
    """A parsed predicate; its `str` is the canonical text."""

    def holds(self, measured: Mapping[str, Measured]) -> bool | None:
        """Return True if it holds; None where the measurements don't say."""

    def names(self) -> frozenset[str]:
        """Return the quantities that it speaks of."""

    def spelled(self) -> str:
        """Return it as an expression of Python over variables of these names."""


@dataclass(frozen=True)
class Compared:
    """`guards > 40`"""

    name: str
    op: str
    number: float

    def holds(self, measured: Mapping[str, Measured]) -> bool | None:
        """See `Predicate`."""
        found = measured.get(self.name)
        if isinstance(found, AtLeast):
            return self._beyond(found.number)
        if not isinstance(found, (int, float)):
            return None
        return _OPERATORS[self.op](found, self.number)

    def _beyond(self, least: float) -> bool | None:
        """Return the truth for any number of at least `least`; None if it depends on the number."""
        if self.op in (">", ">="):
            return True if _OPERATORS[self.op](least, self.number) else None
        if self.op in ("<", "<="):
            return None if _OPERATORS[self.op](least, self.number) else False
        return (self.op == "!=") if least > self.number else None

    def names(self) -> frozenset[str]:
        """See `Predicate`."""
        return frozenset([self.name])

    def __str__(self) -> str:
        return f"{self.name} {self.op} {self.number:.12g}"

    spelled = __str__


@dataclass(frozen=True)
class Found:
    """`code ~ "regex"`"""

    name: str
    wanted: bool
    regex: str

    def holds(self, measured: Mapping[str, Measured]) -> bool | None:
        """See `Predicate`."""
        found = measured.get(self.name)
        if not isinstance(found, str):
            return None
        return (re.search(self.regex, found, re.MULTILINE) is not None) is self.wanted

    def names(self) -> frozenset[str]:
        """See `Predicate`."""
        return frozenset([self.name])

    def __str__(self) -> str:
        quoted = self.regex.replace('"', '\\"')
        return f'{self.name} {"~" if self.wanted else "!~"} "{quoted}"'

    def spelled(self) -> str:
        """See `Predicate`."""
        found = f"re.search({self.regex!r}, {self.name}, re.MULTILINE)"
        return found if self.wanted else f"not {found}"


@dataclass(frozen=True)
class Joined:
    """`a and b`, `a or b`"""

    word: str
    parts: tuple[Predicate, ...]

    def holds(self, measured: Mapping[str, Measured]) -> bool | None:
        """See `Predicate`; if one part decides, the others may be unknown."""
        decides = self.word == "or"
        found = [part.holds(measured) for part in self.parts]
        if decides in found:
            return decides
        return None if None in found else not decides

    def names(self) -> frozenset[str]:
        """See `Predicate`."""
        return frozenset().union(*(part.names() for part in self.parts))

    def __str__(self) -> str:
        return f" {self.word} ".join(_within(part, str(part)) for part in self.parts)

    def spelled(self) -> str:
        """See `Predicate`."""
        return f" {self.word} ".join(_within(part, part.spelled()) for part in self.parts)


@dataclass(frozen=True)
class Negated:
    """`not a`"""

    part: Predicate

    def holds(self, measured: Mapping[str, Measured]) -> bool | None:
        """See `Predicate`."""
        found = self.part.holds(measured)
        return None if found is None else not found

    def names(self) -> frozenset[str]:
        """See `Predicate`."""
        return self.part.names()

    def __str__(self) -> str:
        return f"not {_within(self.part, str(self.part))}"

    def spelled(self) -> str:
        """See `Predicate`."""
        return f"not ({self.part.spelled()})"


def _within(part: Predicate, text: str) -> str:
    return f"({text})" if isinstance(part, Joined) else text


def parse_predicate(text: str) -> Predicate:
    """Return the predicate that `text` spells.  Raises UsageError where it spells none."""
    parser = _Parser(text)
    found = parser.join("or")
    if parser.tokens:
        raise parser.error(f"nothing may follow, but {parser.tokens[0][1]!r} does")
    return found


_MOST_PARTS = 50


class _Parser:
    """A recursive-descent parser; `tokens` are those that have not been read yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split())
        self._depth = 0

    def _split(self) -> list[tuple[str, str]]:
        found, at = [], 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise self.error(f"no word of it can begin with {self.text[at:].strip()[:12]!r}")
            kind = str(match.lastgroup)
            found.append(("number" if kind == "unit" else kind, match[0].strip()))
            at = match.end()
        return found

    def error(self, why: str) -> UsageError:
        return UsageError(
            f"{self.text!r:.200} is no predicate: {why}. Write one as in 'compile_seconds > 5', "
            f"'guards > 40 and not warnings > 0' or 'code ~ \"regex\"', with "
            f"{', '.join(QUANTITIES)}."
        )

    def join(self, word: str) -> Predicate:
        parts = [self.join("and") if word == "or" else self._one()]
        while self._next("word", word):
            parts.append(self.join("and") if word == "or" else self._one())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _one(self) -> Predicate:
        self._depth += 1
        if self._depth > _MOST_PARTS:
            raise self.error(f"it has more than {_MOST_PARTS} parts")
        if self._next("word", "not"):
            return Negated(self._one())
        if self._next("op", "("):
            found = self.join("or")
            self._take("op", "')'", [")"])
            return found
        name = self._take("word", "the name of a quantity", list(QUANTITIES))
        if QUANTITIES[name].kind == "text":
            how = self._take("op", f"'~' or '!~' (after {name})", ["~", "!~"])
            return Found(name, how == "~", self._regex())
        how = self._take("op", f"a comparison (after {name})", list(_OPERATORS))
        return Compared(name, how, self._number())

    def _number(self) -> float:
        token = self._take("number", "a number", None)
        unit = token.lstrip("0123456789.")
        return float(token.removesuffix(unit)) * _UNITS[unit]

    def _regex(self) -> str:
        token = self._take("text", "a regular expression in double quotes", None)
        found = re.sub(r'\\"', '"', token[1:-1])
        try:
            re.compile(found)
        except (re.error, OverflowError, RecursionError) as error:
            raise self.error(f"{found!r} is no regular expression ({error})") from error
        return found

    def _next(self, kind: str, token: str) -> bool:
        if self.tokens[:1] != [(kind, token)]:
            return False
        self.tokens.pop(0)
        return True

    def _take(self, kind: str, what: str, allowed: list[str] | None) -> str:
        found = self.tokens.pop(0) if self.tokens else ("", "its end")
        if found[0] != kind or (allowed is not None and found[1] not in allowed):
            raise self.error(f"{what} is missing where {found[1]!r} stands")
        return found[1]

"""Which words occur in many bytes, told from the pairs of neighbouring bytes in them.

Forty words are looked for in all that is written.  Each takes half a millisecond per megabyte,
though hardly any occurs: the pairs of bytes that do take one and a half, and rule out nine in ten.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from itertools import pairwise

_LONG = 1 << 13
"""Bytes; in fewer, to look for the words themselves is faster."""


class Haystack:
    """Bytes that are searched for many words."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._pairs = _pairs(data) if len(data) >= _LONG else None

    def holds(self, word: bytes) -> bool:
        """Whether the bytes hold this word."""
        return _may_hold(self._pairs, word) and word in self.data

    def holds_in_any_case(self, word: bytes) -> bool:
        """Whether they do when letters are small ones; the word's are."""
        return _may_hold(self._in_any_case, word) and word in self.lowered

    def near(self, word: bytes, reach: int) -> bytes:
        """What is around each place of a word, in small letters: `reach` bytes on either side."""
        places = re.finditer(re.escape(word), self.lowered)
        return b"\0".join(
            self.lowered[max(0, found.start() - reach) : found.end() + reach] for found in places
        )

    @cached_property
    def lowered(self) -> bytes:
        """The bytes with small letters."""
        return self.data.lower()

    @cached_property
    def _in_any_case(self) -> bytes | None:
        return None if self._pairs is None else _folded(self._pairs)


def _pairs(data: bytes) -> bytes:
    """For each pair of bytes, as a number of 16 bits, whether it occurs."""
    import numpy as np  # loaded by torch anyway, and not needed by who only reads a store

    codes = np.frombuffer(data, np.uint8)
    pairs = codes[:-1].astype(np.uint16)
    pairs <<= 8
    pairs |= codes[1:]
    found = np.zeros(1 << 16, np.bool_)
    found[pairs] = True
    return found.tobytes()


def _folded(pairs: bytes) -> bytes:
    """The same of the bytes with small letters."""
    import numpy as np

    found = np.frombuffer(pairs, np.bool_).reshape(256, 256).copy()
    large, small = slice(ord("A"), ord("Z") + 1), slice(ord("a"), ord("z") + 1)
    found[small] |= found[large]
    found[:, small] |= found[:, large]
    return found.tobytes()


def _may_hold(pairs: bytes | None, word: bytes) -> bool:
    return pairs is None or all(pairs[code] for code in _codes(word))


@cache
def _codes(word: bytes) -> tuple[int, ...]:
    return tuple(first << 8 | second for first, second in pairwise(word))

"""Which words occur in some bytes, told for all of them in one pass.

Forty words are looked for in all that is written.  Each takes half a millisecond per megabyte,
though hardly any occurs; the automaton of Aho and Corasick (1975) takes two for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ahocorasick_rs import BytesAhoCorasick, Implementation

_PIECE = 1 << 20
"""Bytes that are searched at once: each place of a word is told, and all of one piece are held."""


class Words:
    """Words to look for, in whatever case."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = sorted({word.lower() for word in words})
        self._beyond = max(map(len, self._words)) - 1
        self._automaton = BytesAhoCorasick(self._words, implementation=Implementation.DFA)

    def within(self, lowered: bytes) -> set[bytes]:
        """Those that occur in bytes with small letters, also within or across one another."""
        found = {
            number
            for start in range(0, len(lowered), _PIECE)
            for number, _, _ in self._automaton.find_matches_as_indexes(
                lowered[start : start + _PIECE + self._beyond], overlapping=True
            )
        }
        return {self._words[number] for number in found}


class Haystack:
    """Bytes that are searched for some of the `words`."""

    def __init__(self, data: bytes, words: Words) -> None:
        self.data = data
        self.lowered = data.lower()
        self._words = words

    @cached_property
    def found(self) -> set[bytes]:
        """The words that occur, in whatever case."""
        return self._words.within(self.lowered)

    def holds(self, word: bytes) -> bool:
        """Whether one of the words occurs as it is."""
        return word.lower() in self.found and word in self.data

    def changed(self, data: bytes) -> Haystack:
        """Other bytes, to be searched for the same words."""
        return self if data is self.data else Haystack(data, self._words)

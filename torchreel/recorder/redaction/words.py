"""Finds the occurrences of many words in bytes, in one pass.

Lives here: the automaton of Aho and Corasick (1975).  Two hundred words are looked for in all that
is written; each would take half a millisecond per megabyte, though hardly any occurs, and the
automaton takes two for all of them.  Not here: what a word means (`known`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ahocorasick_rs import BytesAhoCorasick, Implementation

_PIECE = 1 << 20
"""Bytes that are searched at once: all places of one piece are held in memory."""


class Words:
    """Words to look for, in whatever case."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = sorted({word.lower() for word in words})
        self._beyond = max(map(len, self._words)) - 1
        self._automaton = BytesAhoCorasick(self._words, implementation=Implementation.DFA)

    def places(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return each place where a word begins, and that word in lower case, in order."""
        found: set[tuple[int, int]] = set()
        lowered = data.lower()
        for first in range(0, len(lowered), _PIECE):
            piece = lowered[first : first + _PIECE + self._beyond]
            found.update(
                (first + start, number)
                for number, start, _ in self._automaton.find_matches_as_indexes(
                    piece, overlapping=True
                )
            )
        return [(at, self._words[number]) for at, number in sorted(found)]

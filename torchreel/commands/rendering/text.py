"""Words and numbers for people: shortened lines, commands, durations, counts.

Not here: which characters may be printed (`escaping.characters`), nor the streams they go to
(`streams`).
"""

from __future__ import annotations


def shortened(text: str, width: int = 80) -> str:
    """Return the first line of a text, cut to a width."""
    first = text.strip().splitlines()[0].strip() if text.strip() else ""
    return first if len(first) <= width else f"{first[: width - 1]}…"


def seconds(value: float) -> str:
    """Return a duration as people write it."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 99.5:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """'1 compile', '3 compiles'."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"

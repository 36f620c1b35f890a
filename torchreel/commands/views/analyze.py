"""`torchreel analyze`: the first node that is wrong, and how the error grows along the graph."""

from __future__ import annotations

import json
import math
import os
from html import escape
from pathlib import Path

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import shortened
from torchreel.errors import UsageError
from torchreel.escaping.characters import visible
from torchreel.minifier.accuracy.analyze import Analysis, NodeRow

# Relative errors are drawn on a logarithmic scale: nothing below the first, all beyond the second.
_SMALLEST, _LARGEST = 1e-18, 1e2
_WIDTH = 24  # characters of a bar; of it, one is less than a power of ten


def report(address: str, analysis: Analysis, *, as_json: bool, svg: Path | None) -> int:
    """Print an analysis; returns the exit status: 1 when there is a difference, else 0."""
    if as_json:
        streams.block(json.dumps(analysis.to_json(), indent=2))
    else:
        _print(analysis)
    if svg is not None:
        _write(svg, picture(analysis))
    if analysis.difference:
        streams.next_command("torchreel", "minify", address, "--accuracy")
    else:
        streams.next_command("torchreel", "show", address)
    return 1 if analysis.difference else 0


def refuse_place(svg: Path) -> None:
    """Raise UsageError for a picture that could not be written after the run."""
    if not os.path.isdir(svg.parent):  # unlike Path.is_dir, False for a name that can't be one
        raise UsageError(f"{svg.parent} is no directory: make it first.")
    if os.path.isdir(svg):
        raise UsageError(f"{svg} is a directory: name a file.")


def _write(svg: Path, text: str) -> None:
    replaced = svg.is_file()
    try:
        svg.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{svg} can't be written: {reason}. Name another file.") from error
    streams.say(f"wrote {svg}" + (", over the file that was there" if replaced else ""))


def _print(analysis: Analysis) -> None:
    table = streams.table("node", ">eager", ">compiled", "error, by powers of ten", "")
    for row in analysis.rows:
        mark = "<- first wrong" if row.name == analysis.first else ("wrong" if row.wrong else "")
        cells = (shortened(row.text, 60), _error(row.eager), _error(row.compiled), _bar(row), mark)
        streams.add_row(table, *cells, style="red" if row.wrong else "")
    if table.row_count:
        streams.show(table)
    if not analysis.difference:
        streams.result("Eager and compiled agree.", style="bold")
        if analysis.note:
            streams.result(visible(f"But {analysis.note}."), style="bold")
        streams.result("It was called once: what shows only in a later call is not seen.")
        return
    streams.result(f"Eager and compiled differ: {analysis.difference}", style="bold red")
    streams.result(_conclusion(analysis))


def _conclusion(analysis: Analysis) -> str:
    row = next((row for row in analysis.rows if row.name == analysis.first), None)
    if not analysis.first:
        return (
            "No value of the forward graph shows it when it is looked at by itself: the difference "
            "is in a gradient, or in how the results lie in memory."
        )
    line = f", from the line: {row.line}" if row is not None and row.line else ""
    alone = (
        "The graph up to there is wrong when it is compiled alone."
        if analysis.alone
        else "The graph up to there alone is right: it takes what follows to make it wrong."
    )
    return f"The first node that is wrong is {analysis.first}{line}. {alone}"


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def _position(value: float | None) -> float:
    """Return the place of an error on the scale, from 0 to 1; None counts as the largest."""
    if value is None:
        return 1.0
    low, high = math.log10(_SMALLEST), math.log10(_LARGEST)
    exponent = math.log10(min(max(value, _SMALLEST), _LARGEST))
    return (exponent - low) / (high - low)


def _bar(row: NodeRow) -> str:
    """Return Eager's error as dots, the compiled one's beyond it as bars."""
    eager, compiled = (round(_WIDTH * _position(value)) for value in (row.eager, row.compiled))
    return "·" * min(eager, compiled) + "█" * max(0, compiled - eager)


_HEIGHT, _LEFT, _SPAN = 18, 420, 360  # of a row; of the text; of the scale, all in pixels


def picture(analysis: Analysis) -> str:
    """Return the same as an SVG: a line for each node, eager's error in grey, the other in
    colour.
    """
    height = _HEIGHT * (len(analysis.rows) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _SPAN + 40}" height="{height}" '
        'font-family="monospace" font-size="12">',
        f'<text x="4" y="{_HEIGHT}">relative error of each node, eager (grey) and compiled</text>',
    ]
    for exponent in range(-18, 3, 4):
        x = _LEFT + _SPAN * _position(10.0**exponent)
        parts.append(f'<text x="{x:.0f}" y="{_HEIGHT * 2}" fill="#888">1e{exponent}</text>')
    for number, row in enumerate(analysis.rows, start=2):
        parts += _drawn(row, _HEIGHT * number + 4, first=row.name == analysis.first)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(row: NodeRow, y: int, *, first: bool) -> list[str]:
    colour = "#c00" if row.wrong else "#06c"
    eager, compiled = (_SPAN * _position(value) for value in (row.eager, row.compiled))
    weight = ' font-weight="bold"' if first else ""
    text = escape(visible(shortened(row.text, 56)))
    return [
        f'<text x="4" y="{y + 13}"{weight}>{text}</text>',
        f'<rect x="{_LEFT}" y="{y + 2}" width="{compiled:.0f}" height="7" fill="{colour}"/>',
        f'<rect x="{_LEFT}" y="{y + 10}" width="{eager:.0f}" height="4" fill="#aaa"/>',
    ]

"""The two streams of a command: results on stdout, messages on stderr.

Rich renders both; its markup, emoji and highlighting are off, because what is printed comes from a
store. Where nobody watches (a pipe, a file), lines are as long as they need to be.
"""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from torchreel.commands.rendering.text import shortened
from torchreel.escaping.characters import visible, visible_block
from torchreel.escaping.shell import command
from torchreel.store.passwords import hidden

_UNLIMITED = 4000  # columns; a table in a pipe takes what it needs and no line is cut


def _console(file: TextIO) -> Console:
    width = None if file.isatty() else _UNLIMITED
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)


def out() -> Console:
    """Return the console of results (made anew: tests and pagers replace `sys.stdout`)."""
    return _console(sys.stdout)


def err() -> Console:
    """Return the console of messages and progress."""
    return _console(sys.stderr)


def result(line: object = "", style: str = "") -> None:
    """Print one line of the result."""
    out().print(Text(visible(line), style=style), soft_wrap=True)


def block(text: object) -> None:
    """Print several lines of the result, as they are."""
    sys.stdout.write(visible_block(text).rstrip("\n") + "\n")


def show(renderable: RenderableType) -> None:
    """Print a table of the result; without the blanks at its right edge where nobody watches."""
    console = out()
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    lines = captured.get().splitlines()
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def say(line: object, style: str = "") -> None:
    """Print one line for the person who waits."""
    err().print(Text(visible(line), style=style), soft_wrap=True)


def step(text: str) -> None:
    """Print one step for the person who waits."""
    say(f"  {shortened(text, 160)}")


def next_command(*words: object) -> None:
    """Print the last line of every command: what to run next."""
    say(f"next: {command(*words)}", style="bold")


def same_command(*more: str) -> None:
    """Print, as what to run next, the command that runs, with some more options."""
    words = sys.argv[1:]
    given = words[: words.index("--")] if "--" in words else words
    added = [word for word in more if word not in given]
    next_command("torchreel", *map(hidden, (*words[:1], *added, *words[1:])))


def same_command_with(option: str, value: str) -> None:
    """Print, as what to run next, the command that runs, with another value of an option."""
    verb, *words = sys.argv[1:]
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word == option:
            del words[:1]
        elif not word.startswith(f"{option}="):
            kept.append(word)
    next_command("torchreel", *map(hidden, (verb, option, value, *kept)))


def table(*columns: str, title: str = "") -> Table:
    """Return a table in the style of all tables; a column whose name starts with '>' holds
    numbers.
    """
    made = Table(
        title=Text(title) if title else None, box=None, pad_edge=False, title_justify="left"
    )
    for column in columns:
        name = column.removeprefix(">")
        justify = "right" if column.startswith(">") else "left"
        made.add_column(name, justify=justify, overflow="fold", header_style="bold")  # type: ignore[arg-type]
    return made


def add_row(to: Table, *cells: object, style: str = "") -> None:
    """Add a row of cells that may hold anything; of a huge text, its beginning."""
    to.add_row(
        *(Text(_short(visible("" if cell is None else cell))) for cell in cells), style=style
    )


def _short(text: str) -> str:
    """Return the beginning of a text that no table can show: laying out megabytes takes minutes."""
    left = len(text) - _MOST_CHARACTERS
    return text if left <= 0 else f"{text[:_MOST_CHARACTERS]}... and {left} characters more"


_MOST_CHARACTERS = 10_000
"""Characters of a cell."""


def say_block(text: object) -> None:
    """Print several lines for the person who waits."""
    sys.stderr.write(visible_block(text).rstrip("\n") + "\n")

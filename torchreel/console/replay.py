"""`torchreel replay`: what was compared, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from torchreel.console import streams
from torchreel.console.text import clean
from torchreel.replay import Comparison, Verdict
from torchreel.store import Store
from torchreel.store.records import Compile

_STYLES = {"identical": "bold green", "diverged": "bold red", "refused": "bold yellow"}


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say that something takes long: with a spinner on a terminal, with one line elsewhere."""
    console = streams.err()
    if not console.is_terminal:
        streams.say(what)
        yield
        return
    with console.status(Text(clean(what))):
        yield


def report(store: Store, row: Compile, verdict: Verdict) -> None:
    """Print a verdict: never without what it rests on."""
    _print_compared(verdict.compared)
    for note in verdict.notes:
        streams.say(f"note: {note}", style="yellow")
    detail = f": {verdict.detail}" if verdict.detail else ""
    streams.result(f"{verdict.verdict}{detail}", style=_STYLES.get(verdict.verdict, ""))
    if verdict.difference:
        streams.block(verdict.difference)
    _print_next(store, row, verdict)


def _print_compared(compared: tuple[Comparison, ...]) -> None:
    if not compared:
        return
    table = streams.table("stage", "partition", "compared", ">recorded", ">replayed", ">identical")
    for item in compared:
        cells = (item.stage, item.partition, item.kind)
        counts = (int(item.recorded), int(item.replayed), int(item.identical))
        streams.add_row(table, *cells, *counts, style="" if item.agrees else "red")
    streams.show(table)


def _print_next(store: Store, row: Compile, verdict: Verdict) -> None:
    if verdict.verdict == "diverged" and verdict.recording_id is not None:
        streams.next_command("torchreel", "show", f"{store.target}#{verdict.recording_id}")
    elif verdict.verdict == "identical" and row.status in ("failed", "crashed", "hung"):
        streams.next_command("torchreel", "minify", f"{store.target}#{row.place}")
    else:
        streams.next_command("torchreel", "show", f"{store.target}#{row.place}")

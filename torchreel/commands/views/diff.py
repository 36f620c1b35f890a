"""`torchreel diff`: what sets two sides apart, layer by layer; where the ranks part."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from torchreel.analysis.diff import (
    CompileDiff,
    DiffReport,
    LayerDiff,
    LayerDifference,
    RecordingDiff,
)
from torchreel.analysis.diff.ranks import RanksReport
from torchreel.analysis.diff.report import place
from torchreel.analysis.diff.text import parting_lines
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count
from torchreel.escaping.characters import visible_block

_WIDTH = 240  # columns of a cell; --json has all of it


def report(found: DiffReport, *, every: bool, json: bool) -> int:
    """Print the result of a diff, the first difference of each layer or `every` one."""
    if json:
        listing.write_json(found.to_json())
    else:
        for pair in found.recordings:
            _print_recordings(pair, every)
        _print_alone(found.only_left, found.only_right)
        _print_end(found)
    streams.next_command("torchreel", "show", _next(found))
    return found.exit_status


def _print_recordings(pair: RecordingDiff, every: bool) -> None:
    for number, compiles in enumerate(pair.compiles):
        environment = pair.environment if number == 0 else None
        layers = [*([environment] if environment is not None else []), *compiles.layers]
        _print_compiles(compiles, layers, every)
    _print_alone(
        [side.address for side in pair.only_left], [side.address for side in pair.only_right]
    )
    for note in pair.notes:
        streams.say(f"note: {note}", style="yellow")


def _print_compiles(pair: CompileDiff, layers: Sequence[LayerDiff], every: bool) -> None:
    differing = [layer for layer in layers if layer.differences]
    heading = f"{pair.left.address} and {pair.right.address}  {pair.left.compile.frame_name}"
    streams.result(heading.rstrip(), style="bold")
    table = streams.table("layer", ">left", ">right", ">differences", "")
    for layer in layers:
        found = len(layer.differences) if layer.compared or layer.differences else ""
        style = "red" if layer.differences else ""
        streams.add_row(table, layer.layer, layer.left, layer.right, found, layer.note, style=style)
    streams.show(table)
    streams.result()
    _print_differences(pair, differing, every)


def _print_differences(pair: CompileDiff, layers: Sequence[LayerDiff], every: bool) -> None:
    if not layers:
        return
    table = streams.table("difference", pair.left.address, pair.right.address)
    for layer in layers:
        for difference in layer.differences if every else layer.differences[:1]:
            table.add_row(*map(_cell, _cells(layer, difference)))
    streams.show(table)
    streams.result()


def _cells(layer: LayerDiff, found: LayerDifference) -> tuple[str, str, str]:
    left, right = parting_lines(found.left, found.right, _WIDTH)
    return (
        f"{layer.layer}: {found.what}",
        _side(left, found.left_at),
        _side(right, found.right_at),
    )


def _side(text: str, at: str) -> str:
    event = f"@{at.rpartition('@')[2]} " if at else ""
    return f"{event}{text or '(nothing)'}"


def _cell(text: str) -> Text:
    lines = visible_block(text).split("\n")
    return Text("\n".join(x if len(x) <= _WIDTH else f"{x[: _WIDTH - 1]}…" for x in lines))


def _print_alone(left: Sequence[str], right: Sequence[str]) -> None:
    for side, addresses in (("left", left), ("right", right)):
        for address in addresses:
            streams.result(f"only on the {side}: {address}", style="red")


def _print_end(found: DiffReport) -> None:
    pairs = [pair for recording in found.recordings for pair in recording.compiles]
    if found.same:
        streams.result("no differences", style="bold green")
        return
    streams.result(
        _verdict(sum(bool(pair.differing) for pair in pairs), len(pairs)), style="bold red"
    )


def _verdict(differing: int, pairs: int) -> str:
    if not pairs:
        return "no compile of one side has a counterpart on the other"
    if not differing:
        return "no compile differs that both sides have; what else does is above"
    return f"{count(differing, 'compile')} of {pairs} differ"


def _next(found: DiffReport) -> str:
    """Return the address of the first differing event, else of a compile."""
    pairs = [pair for recording in found.recordings for pair in recording.compiles]
    for pair in pairs:
        for layer in reversed(pair.differing):
            for difference in layer.differences:
                if at := difference.left_at or difference.right_at:
                    return at
    alone = [
        side.address for pair in found.recordings for side in (*pair.only_left, *pair.only_right)
    ]
    known = [pair.left.address for pair in pairs if pair.differing] or [*alone, *found.only_left]
    return (known + [pair.left.address for pair in pairs] + [*found.only_right])[0]


# -- ranks ----------------------------------------------------------------------------------------


def report_ranks(found: RanksReport, *, json: bool) -> int:
    """Print the first decision in which the ranks of a job part."""
    if json:
        listing.write_json(found.to_json())
    else:
        _print_ranks(found)
    parting = found.parting
    known = [view.address for view in parting.views if view.address] if parting is not None else []
    streams.next_command("torchreel", "show", known[0] if known else found.ranks[0].address)
    return found.exit_status


def _print_ranks(found: RanksReport) -> None:
    table = streams.table(">rank", "recording", ">compiles")
    for rank in found.ranks:
        streams.add_row(table, rank.rank, place(rank.store, rank.recording), len(rank.compiles))
    streams.show(table)
    streams.result()
    same = f"{count(found.compiles, 'compile')} and {count(found.decisions, 'decision')} alike"
    if found.parting is None:
        streams.result(f"the ranks agree: {same}", style="bold green")
        return
    streams.result(f"the ranks part at a {found.parting.what}, after {same}", style="bold red")
    if found.parting.before:
        streams.result(f"before it: {found.parting.before}")
    made = streams.table(">rank", "at", "what")
    for view in found.parting.views:
        made.add_row(_cell(str(view.rank)), _cell(view.address), _cell(view.text))
    streams.show(made)

"""Prints the answer of `torchreel triage`: the groups, one paragraph each, or all of it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchreel.analysis.recording_words import when
from torchreel.analysis.triage.summaries import GroupSummary, Triage
from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count, shortened
from torchreel.escaping.shell import command

if TYPE_CHECKING:
    from torchreel.minifier.accuracy.ranking import GraphAccuracy  # which imports torch

_MOST_RANKS = 8


def report(found: Triage, *, has_baseline: bool, json: bool) -> None:
    """Print the groups, those that are new first."""
    if json:
        listing.write_json(found.to_json())
    else:
        streams.result(_title(found, has_baseline), style="bold")
        for group in found.groups:
            _print_group(group)
    for text in found.unreadable:
        streams.say(f"left out: {text}")
    if found.groups:
        streams.next_command(*found.groups[0].next)


def report_accuracy(found: Sequence[GraphAccuracy], *, json: bool) -> int:
    """Print graphs, the furthest from eager mode first; returns 1 if one differs."""
    differing = [one for one in found if one.state == "differs"]
    if json:
        listing.write_json([one.to_json() for one in found])
    else:
        streams.result(
            f"{count(len(found), 'distinct graph')}, {len(differing)} of them with other values "
            "than eager",
            style="bold",
        )
        table = streams.table(
            "result", ">error", ">calls", ">compiles", "frame", "compile", "what differs"
        )
        for one in found:
            error = "" if one.error is None else f"{one.error:.3g}"
            cells = one.state, error, one.call_nodes, one.compiles, one.frame, one.address
            streams.add_row(table, *cells, shortened(one.detail, 80))
        if found:
            streams.show(table)
    if differing:
        streams.next_command("torchreel", "analyze", differing[0].address)
    return 1 if differing else 0


def _title(found: Triage, has_baseline: bool) -> str:
    failures = sum(group.failures for group in found.groups)
    new = f", {sum(group.is_new for group in found.groups)} of them new" if has_baseline else ""
    return (
        f"{count(failures, 'failure')} in {count(found.stores, 'store')}: "
        f"{count(len(found.groups), 'group')}{new}"
    )


def _print_group(group: GroupSummary) -> None:
    streams.result()
    new = "new: " if group.is_new else ""
    line = f"{group.what} in {group.stage}: {shortened(group.message, 120)}"
    streams.result(f"{group.id}  {new}{line.rstrip(': ')}", style="red" if group.is_new else "bold")
    if group.place:
        streams.result(f"  in {group.place}")
    streams.result(f"  {_seen(group)}")
    streams.result(f"  {_smallest(group)}")


def _seen(group: GroupSummary) -> str:
    first, last = when(group.first_seen_ns), when(group.last_seen_ns)
    parts = [
        f"{count(group.failures, 'failure')} of {count(group.processes, 'process', 'processes')}",
        f"{count(group.runs, 'run')}" if group.runs > 1 else "",
        _ranks(group.ranks),
        first if first == last else f"{first} to {last}",
        f"torch {', '.join(group.torch)}" if group.torch else "",
    ]
    return ", ".join(part for part in parts if part)


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) < 2:
        return ""
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    return f"ranks {shown}" + (", ..." if len(ranks) > _MOST_RANKS else "")


def _smallest(group: GroupSummary) -> str:
    kind = "smallest case" if group.is_reduced else "smallest graph"
    if group.smallest_size is None:
        return f"no graph: {command(*group.next)}"
    return f"{kind}: {count(group.smallest_size, group.smallest_unit)}: {command(*group.next)}"

"""`torchreel replay`: what was compared, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from torchreel.commands.rendering import failure, listing, streams
from torchreel.commands.rendering.waiting import while_long
from torchreel.errors import UsageError
from torchreel.replay import Comparison, Verdict
from torchreel.replay.compare.verdict import Divergence, Reached
from torchreel.replay.many import Replay, Row, replay_all, replay_repeatedly, worst
from torchreel.store import Store, queries
from torchreel.store.records import Compile, Recording

_TEXTS = ("detail", "cause")
_NAMED = 8  # compiles before a text that is about more
_STYLES = {
    "identical": "bold green", "diverged": "bold red", "refused": "bold yellow",
    "unchanged": "bold green", "changed": "bold red",
}  # fmt: skip


def replay_one(
    store: Store,
    row: Compile,
    entry: str,
    replay: Replay,
    repeat: int,
    *,
    json: bool,
    prompt: bool = False,
) -> int:
    """Replay a compile, once or several times, print the verdict, and return the exit status."""
    with while_long(f"replaying {row.place} (--entry {entry})", still=prompt):
        if repeat == 1:
            verdict = replay(row, entry)
        else:
            verdict = replay_repeatedly(replay, row, entry, repeat)
    if json:
        listing.write_json(verdict.to_json())
    else:
        report(store, row, verdict)
    return verdict.exit_status


def refuse_repeats(repeat: int) -> None:
    """Raise UsageError for options that make no sense together."""
    if repeat != 1:
        raise UsageError("Use --repeat with one compile, or --all, not both.")


def replay_every(
    store: Store, recording: int | None, entry: str | None, replay: Replay, *, json: bool
) -> int:
    """Replay every compile, print a table of verdicts, and return the worst exit status."""
    rows = []
    for row in replay_all(store, recording, tuple((entry or "graph").split(",")), replay):
        streams.say(f"{row.compile.place} {row.verdict.entry}: {row.verdict.verdict}")
        rows.append(row)
    if json:
        listing.write_json([row.to_json() for row in rows])
    else:
        _print_table(rows)
    return worst([row.verdict for row in rows])


def replay_sequence(
    store: Store, recording: int | None, replay: Callable[..., list[Row]], *, json: bool
) -> int:
    """Replay a recording's frames in order, print their verdicts, and return the worst status."""
    rows = replay(store, _recording(store, recording), listener=streams.say)
    if json:
        listing.write_json([row.to_json() for row in rows])
    else:
        _print_table(rows)
    return worst([row.verdict for row in rows])


def _recording(store: Store, wanted: int | None) -> Recording:
    """Return the recording that was named, or the last one of a program."""
    if wanted is not None:
        return queries.recording(store, wanted)
    found = queries.programs(store)
    if not found:
        raise UsageError(f"{store.target} has no recording: nothing was recorded into it.")
    return found[-1]


def _print_table(rows: Sequence[Row]) -> None:
    if not rows:
        streams.say("nothing was compiled while it recorded")
        return
    columns = [{k: v for k, v in row.to_json().items() if k not in _TEXTS} for row in rows]
    listing.write(columns, listing.Format.TABLE)
    # A sentence in a cell would be torn into a column of single words.
    _print_texts(rows, lambda row: row.verdict.detail and f"{row.verdict}")
    _print_texts(rows, lambda row: row.verdict.cause and f"likely cause: {row.verdict.cause}")
    tally = Counter(row.verdict.verdict for row in rows)
    streams.result(", ".join(f"{tally[kind]} {kind}" for kind in _STYLES if tally[kind]))


def _print_texts(rows: Sequence[Row], text_of: Callable[[Row], str | None]) -> None:
    """Print each text once, after the compiles that it is about."""
    places: dict[str, list[str]] = {}
    for row in rows:
        if text := text_of(row):
            places.setdefault(text, []).append(f"{row.compile.place} {row.verdict.entry}")
    for text, named in places.items():
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        streams.result(f"{', '.join(named[:_NAMED])}{more}: {text}")


def report(store: Store, row: Compile, verdict: Verdict) -> None:
    """Print a verdict: never without what it rests on."""
    _print_compared(verdict.compared)
    for note in verdict.notes:
        streams.say(f"note: {note}", style="yellow")
    streams.result(str(verdict), style=_STYLES.get(verdict.verdict, ""))
    _print_reached(verdict.reached)
    _print_before(verdict.divergence)
    if verdict.difference:
        streams.block(verdict.difference)
    if verdict.cause:
        streams.result(f"likely cause: {verdict.cause}")
    _print_next(store, row, verdict)


def _print_reached(reached: Reached | None) -> None:
    if reached is None or reached.seq is None:
        return
    streams.result(f"the last event up to there: @{reached.seq} {reached.what}")
    if reached.details:
        streams.block("\n".join(f"  {line}" for line in reached.details))
    if reached.before:
        streams.result(f"the {len(reached.before)} events before it:")
    for seq, what in reached.before:
        streams.result(f"  @{seq} {what}")


def _print_before(divergence: Divergence | None) -> None:
    if divergence is None or not divergence.before:
        return
    streams.result(f"the last {len(divergence.before)} events that both have:")
    for seq, what in divergence.before:
        streams.result(f"  @{seq} {what}")


def _print_compared(compared: tuple[Comparison, ...]) -> None:
    if not compared:
        return
    table = streams.table("stage", "partition", "compared", ">recorded", ">replayed", ">identical")
    for item in compared:
        cells = (item.stage, item.partition, item.kind)
        counts = (int(item.recorded), int(item.replayed), int(item.identical))
        streams.add_row(table, *cells, *counts, style="" if item.agrees else "red")
    streams.show(table)


def _may_be_reduced(store: Store, row: Compile) -> bool:
    failed = row.status in ("failed", "crashed", "hung")
    return failed and not queries.is_decomposition(store, row)


def _print_next(store: Store, row: Compile, verdict: Verdict) -> None:
    divergence, reached = verdict.divergence, verdict.reached
    if verdict.verdict == "identical" and reached is not None and reached.seq is not None:
        streams.next_command(
            "torchreel", "shapes", f"{store.target}#{row.place}", "--at", str(reached.seq)
        )
    elif verdict.verdict == "changed" and verdict.recording_id is not None and store.writable:
        sides = f"{store.target}#{row.place}", f"{store.target}#{verdict.recording_id}"
        streams.next_command("torchreel", "diff", *sides)
    elif divergence is not None and divergence.seq is not None:
        streams.next_command("torchreel", "show", f"{store.target}#{row.place}@{divergence.seq}")
    elif verdict.verdict == "diverged" and verdict.recording_id is not None:
        streams.next_command("torchreel", "show", f"{store.target}#{verdict.recording_id}")
    elif verdict.verdict == "identical" and _may_be_reduced(store, row):
        trust = failure.trust_words(store, row)
        streams.next_command("torchreel", "minify", f"{store.target}#{row.place}", *trust)
    elif verdict.verdict == "refused" and verdict.entry != "frame" and _has_frame(store, row):
        address = f"{store.target}#{row.place}"
        streams.next_command("torchreel", "replay", address, "--entry", "frame", "--trust")
    else:
        streams.next_command("torchreel", "show", f"{store.target}#{row.place}")


def _has_frame(store: Store, row: Compile) -> bool:
    """Return True if the frame of a compile was kept, in this attempt or an earlier one."""
    bundles = (
        queries.frame_bundle(store, one)
        for one in queries.compiles(store, row.recording_id)
        if (one.generation, one.compile_id) == (row.generation, row.compile_id)
    )
    return any(bundle is not None and bundle.digest is not None for bundle in bundles)

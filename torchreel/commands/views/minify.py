"""`torchreel minify`: progress while it runs, and a table per pass when it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.status import Status
from rich.text import Text

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.failure import facts
from torchreel.commands.rendering.text import count, seconds, shortened
from torchreel.commands.views import export as script_view
from torchreel.escaping.characters import visible
from torchreel.escaping.shell import command
from torchreel.minifier.cases.case import Case
from torchreel.minifier.options import Budget
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.results.reductions import Listener, MinifyResult, ProgressEvent
from torchreel.store import Store, queries
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Compile, Failure

_WHOLE = 3  # other failures that are printed with all that tells them apart
_EVERY = 10.0  # seconds between two lines, where nobody watches and nothing is accepted


class Progress:
    """Shows where a search is: a live line on a terminal, lines elsewhere."""

    def __init__(self, limits: Budget, status: Status | None) -> None:
        self._limits, self._status = limits, status
        self._last = time.monotonic()

    def on_step(self, event: ProgressEvent) -> None:
        """See `Listener`."""
        text = _progress_line(event, self._limits)
        if event.kind == "start":
            note = f"; {event.message}" if event.message else ""
            self._say(f"reproduced with {count(event.call_nodes, event.unit)}{note}")
        elif event.kind == "note":
            self._say(event.message)
        elif event.kind == "begin" and self._status is None:
            streams.say(event.message)
        elif self._status is not None:
            self._status.update(Text(visible(text)))
        elif event.kind == "accepted" or time.monotonic() - self._last > _EVERY:
            self._last = time.monotonic()
            streams.say(text)

    def _say(self, text: str) -> None:
        if self._status is None:
            streams.say(text)
        else:  # above the live line, not through it
            self._status.console.print(Text(visible(text)))


def _progress_line(event: ProgressEvent, limits: Budget) -> str:
    if event.kind in ("begin", "looking"):
        return event.message
    rate = event.oracle_runs / event.seconds if event.seconds else 0.0
    parts = [
        f"{event.start_call_nodes} -> {count(event.call_nodes, event.unit)}",
        f"pass {event.pass_name}" if event.pass_name else "",
        f"{count(event.oracle_runs, 'run')} ({rate:.1f}/s), {event.cache_hits} from the cache",
        seconds(event.seconds) + _left(event, limits),
    ]
    return ", ".join(part for part in parts if part)


def _left(event: ProgressEvent, limits: Budget) -> str:
    if event.seconds_left is not None:
        return f", {seconds(event.seconds_left)} left"
    if limits.runs is not None:
        return f", {count(max(0, limits.runs - event.oracle_runs), 'run')} left"
    if event.left is not None and event.oracle_runs:
        most = event.left * event.seconds / event.oracle_runs
        return f", at most {seconds(most)} more unless another step succeeds"
    return ""


@contextmanager
def watched(limits: Budget) -> Iterator[Listener]:
    """Give a listener that shows progress for the length of a `with`."""
    console = streams.err()
    if not console.is_terminal:
        yield Progress(limits, None)
        return
    with console.status("reading the store") as status:
        yield Progress(limits, status)


def report(reduction: MinifyResult) -> None:
    """Print the result of a search: the passes, the sizes, the other failures."""
    _print_passes(reduction)
    before, after = reduction.before_call_nodes, reduction.after_call_nodes
    streams.result(
        f"{before} -> {count(after, reduction.case.unit)}, {count(reduction.oracle_runs, 'run')}, "
        f"{reduction.cache_hits} from the cache, {seconds(reduction.seconds)}: {reduction.status}",
        style="bold",
    )
    if reduction.wasted_runs:
        streams.result(f"{count(reduction.wasted_runs, 'run')} ahead of the search not needed.")
    if reduction.flaky is not None:
        failures, tries = reduction.flaky
        streams.result(f"The case is flaky: it failed in {failures} of {tries} runs.")


def _print_other_failures(store: Store, reduction: MinifyResult, asked: Sequence[str]) -> None:
    """Print other failures that were met: a few with the command that exports one, a line each
    for the rest.
    """
    rows = {row.id: row for row in queries.reductions(store)}
    row = rows.get(reduction.reduction_id or 0)
    numbers = (
        {found.signature_digest: found.id for found in queries.by_catch(store, row)} if row else {}
    )
    for place, found in enumerate(reduction.other_failures):
        number = numbers.get(found.signature.digest)
        size = count(found.call_nodes, reduction.case.unit)
        if place >= _WHOLE:
            told = _in_short(found.signature)
            apart = found.signature.apart_from(reduction.signature)
            streams.result(f"other failure {number} ({size}): {told}{apart and f'; {apart}'}")
            continue
        streams.result(f"other failure {number} ({size}):")
        for name, text in facts(found.signature):
            streams.result(f"  {name:<8} {text}")
        if apart := found.signature.apart_from(reduction.signature):
            streams.result(f"  {'apart by':<8} {shortened(apart, 200)}")
        words = ("torchreel", "export", store.target, "--other-failure", str(number), *asked)
        streams.result(f"  {'export':<8} {command(*words)}")


def _in_short(signature: Signature) -> str:
    """Return the type and the message of a failure, or what else tells it, in a line."""
    what = signature.exception_types[0] if signature.exception_types else signature.failure_class
    return shortened(f"{what} in stage {signature.stage}: {signature.message or signature.signal}")


def explain(found: Explanation) -> None:
    """Print the findings about the smallest case: a workaround, the nearest case that passes."""
    for number, line in enumerate(found.workaround):
        note = "" if found.checked else "  (not seen to run to its end)"
        streams.result(f"{'workaround' if not number else '':<12} {line}{note}", style="bold")
    if not found.workaround:
        streams.result(f"{'workaround':<12} none of the config entries tried cures it")
    if found.neighbour:
        label = "passes" if found.neighbour.startswith("without ") else "passes with"
        streams.result(f"{label:<12} {found.neighbour}")
    for number, text in enumerate(found.same):
        streams.result(f"{'the same for' if not number else '':<12} {text}")
    unfinished = "" if found.complete else ", which is the limit: not everything was asked"
    streams.say(f"found out in {count(found.runs, 'more run')}{unfinished}")


def _print_passes(reduction: MinifyResult) -> None:
    columns = (">tried", ">from cache", ">accepted", ">nodes removed", ">time")
    table = streams.table("pass", *columns)
    for item in (found for found in reduction.passes if found.tried):
        cells = (item.tried, item.cached, item.accepted, item.removed_nodes, seconds(item.seconds))
        streams.add_row(table, item.name, *cells)
    if table.row_count:
        streams.show(table)


def finish(store: Store, reduction: MinifyResult, options: ExportOptions) -> int:
    """Report a search, export its result, and return the exit status."""
    asked = [word for name in options.imports for word in ("--import", name)]
    asked += ["--trust"] if reduction.case.is_code else []
    report(reduction)
    _print_other_failures(store, reduction, asked)
    if reduction.explanation is not None:
        explain(reduction.explanation)
    failure, row = _origin(store, reduction)
    address = f"{store.target}#{row.place}"
    if reduction.status == "interrupted":
        streams.say(f"interrupted: the best case so far is in {store.target}.")
        streams.same_command()
        return 130
    best = reduction.case if isinstance(reduction.case, Case) else None
    exported = export(store, row, replace(options, say=streams.say), failure, best)
    is_spent = reduction.status == "budget"
    status = script_view.report(address, exported, is_last=not is_spent)
    if is_spent:
        streams.say("The budget is spent: the same command goes on from here.", style="yellow")
        streams.same_command("--force")
        return 4
    return status


def _origin(store: Store, reduction: MinifyResult) -> tuple[Failure, Compile]:
    """Return the failure that was reduced, and its compile."""
    rows = {row.id: row for row in queries.reductions(store)}
    found = {failure.id: failure for failure in queries.failures(store)}
    row = rows[reduction.reduction_id or 0]
    failure = found[row.failure_id or 0]
    return failure, queries.compile_by_id(store, failure.compile_id or 0)

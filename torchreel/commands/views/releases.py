"""`torchreel releases`: the question before environments are made, the runs, and the table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer

from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count, shortened
from torchreel.releases.environments import GIGABYTES, VERSIONS, folder_of
from torchreel.releases.results import NO_ENVIRONMENT, Survey, Tried
from torchreel.store.documents.jsontypes import Json


def permission(*, yes: bool) -> Callable[[Sequence[str]], bool]:
    """Return a function that decides, or asks, if some versions' environments may be made."""

    def granted(versions: Sequence[str]) -> bool:
        made = f"{count(len(versions), 'environment')} (torch {', '.join(versions)})"
        place = folder_of(versions[0]).parent
        size = f"up to {GIGABYTES * len(versions):g} GB in {place}, from the network"
        if yes:
            streams.say(f"making {made}: {size}")
            return True
        if not sys.stdin.isatty():
            streams.say(f"not making {made}, because nobody can be asked: --yes makes them")
            return False
        return typer.confirm(f"Make {made}: {size}?", err=True)

    return granted


def report(address: str, found: Survey, *, json: bool, kept: bool) -> int:
    """Print the result of each release; returns the exit status: 1 when none shows the failure."""
    status = 0 if found.is_shown else 1
    if json:
        listing.write_json(_as_json(found))
        return status
    table = streams.table("torch", "result", ">runs", "what happened")
    for one in found.tried:
        streams.add_row(table, one.torch, one.result, len(one.runs), _detail(one))
    streams.show(table)
    streams.result()
    for line in found.conclusions():
        streams.result(line, style="bold")
    if not kept:
        streams.say("The store can't be written to: the issue will not tell of this.")
    _print_next(address, found)
    return status


def _detail(tried: Tried) -> str:
    return shortened(tried.telling.detail, 100)


def _print_next(address: str, found: Survey) -> None:
    """Print how to try those without an environment too; or older ones, while the oldest tried one
    fails; or the issue.

    What is tried anew replaces what is known, so all is tried again.
    """
    first = found.tried[0] if found.tried else None
    oldest, *_ = VERSIONS
    if any(one.reason == NO_ENVIRONMENT for one in found.tried):
        streams.same_command("--yes")
    elif first is not None and first.state == "same" and first.torch != VERSIONS[oldest]:
        streams.same_command_with("--since", oldest)
    else:
        streams.next_command("torchreel", "export", address)


def _as_json(found: Survey) -> Json:
    rows: list[Json] = [
        {
            "torch": one.torch,
            "state": one.state,
            "shown": one.shown,
            "detail": one.telling.detail,
            "runs": [{"state": run.state, "detail": run.detail} for run in one.runs],
        }
        for one in found.tried
    ]
    ranges: list[Json] = [
        {
            "bad": list(one.bad),
            "last_good": one.good or None,
            "first_bad": one.bad[0],
            "first_fixed": one.fixed or None,
            "unclear_before": list(one.unclear_before),
            "unclear_after": list(one.unclear_after),
        }
        for one in found.stretches()
    ]
    return {
        "recorded": found.recorded,
        "form": found.form,
        "releases": rows,
        "ranges": ranges,
        "conclusions": list(found.conclusions()),
    }

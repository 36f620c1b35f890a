"""`torchreel triage`: group the failures of many stores by bug."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from torchreel.commands.options import (
    ImportOption,
    JsonOption,
    StoresArgument,
    without_password,
)


def triage(
    stores: StoresArgument = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="STORE",
            help="Tell which groups are not in this one.",
            callback=without_password,
        ),
    ] = None,
    accuracy: Annotated[
        bool,
        typer.Option("--accuracy", help="Rank every graph by its compiled results against eager."),
    ] = False,
    imports: ImportOption = None,
    json: JsonOption = False,
) -> None:
    """Group the failures of many stores by bug.

    Of each group: how many failures of how many processes, when, with which versions of torch, the
    smallest case, and the command that goes on from there. Failures with one signature are one
    group if it names a place in the compiler. Where that place only reports what the program did,
    the statement of the program or the frames of its backend have to be alike as well; of a crash,
    a wrong result or an error of generated code, the graphs. Where 'minify' found smaller cases,
    their canonical form parts what only looks alike and joins what is only worded differently. In
    doubt, failures part. Nothing of a store is executed, and torch is not imported.

    The address of a recording or a compile, as in 'run.db#17/0/0', asks for the groups of its
    failures among those of its store, and is the one that is given.

    With --accuracy, no failure is needed: each distinct graph of the stores is run on invented
    inputs, in eager mode and compiled, and those that differ come first, the furthest before. That
    runs torch, confined, for each graph; it exits with 1 when one differs.

    Exits with 1 when there is a group that the stores of --baseline do not have, with 3 when there
    is none, but a store could not be read in full.
    """
    if accuracy:
        raise typer.Exit(_rank(stores or [], baseline or [], tuple(imports or ()), json=json))
    from torchreel.analysis.triage.summaries import triage as grouped
    from torchreel.analysis.triage.summaries import triage_of
    from torchreel.commands.rendering.waiting import while_slow
    from torchreel.commands.views import triage as view
    from torchreel.errors import UsageError
    from torchreel.store.addressing import default_store, parse

    places = [where for where in map(parse, stores or ()) if where.recording is not None]
    if not places:
        with while_slow("grouping failures"):
            found = grouped(stores or [default_store()], baseline or ())
    elif len(stores or ()) == 1 and not baseline:
        with while_slow("grouping failures"):
            found = triage_of(places[0])
    else:
        raise UsageError(f"{places[0]} is a part of a store: give it alone, without --baseline.")
    view.report(found, has_baseline=bool(baseline), json=json)
    raise typer.Exit(1 if any(group.is_new for group in found.groups) else found.exit_status)


def _rank(
    stores: Sequence[str], baseline: Sequence[str], imports: tuple[str, ...], *, json: bool
) -> int:
    from contextlib import ExitStack

    from torchreel.commands.rendering import streams
    from torchreel.commands.views import triage as view
    from torchreel.errors import UsageError
    from torchreel.minifier.accuracy.ranking import rank
    from torchreel.minifier.oracle.worker_oracle import WorkerOracle
    from torchreel.store import Store
    from torchreel.store.addressing import default_store
    from torchreel.store.failures.signature import wrong_result_signature

    if baseline:
        raise UsageError("--baseline compares failures: leave it out with --accuracy.")
    with ExitStack() as opened:
        found = [opened.enter_context(Store.open(path)) for path in stores or [default_store()]]
        wanted = wrong_result_signature("values")
        oracle = opened.enter_context(WorkerOracle(wanted, imports=imports))
        return view.report_accuracy(rank(found, imports, oracle, streams.say), json=json)

"""`torchreel triage`: group the failures of many stores by bug."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import JsonOption, StoresArgument, without_password


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

    Exits with 1 when there is a group that the stores of --baseline do not have, with 3 when there
    is none, but a store could not be read in full.
    """
    from torchreel.analysis.triage.summaries import triage as grouped
    from torchreel.analysis.triage.summaries import triage_of
    from torchreel.commands.views import triage as view
    from torchreel.errors import UsageError
    from torchreel.store.addressing import default_store, parse

    places = [where for where in map(parse, stores or ()) if where.recording is not None]
    if not places:
        found = grouped(stores or [default_store()], baseline or ())
    elif len(stores or ()) == 1 and not baseline:
        found = triage_of(places[0])
    else:
        raise UsageError(f"{places[0]} is a part of a store: give it alone, without --baseline.")
    view.report(found, has_baseline=bool(baseline), json=json)
    raise typer.Exit(1 if any(group.is_new for group in found.groups) else found.exit_status)

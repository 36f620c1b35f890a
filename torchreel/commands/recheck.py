"""`torchreel recheck`: find out which failures another torch has fixed."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import ImportOption, JsonOption, StoresArgument, TrustOption


def recheck(
    stores: StoresArgument = None,
    *,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The Python that has the other torch.")
    ],
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=3, help="Run each case N times.")
    ] = 3,
    imports: ImportOption = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Find out which failures another torch has fixed.

    The failures are grouped as 'triage' does. Of each group, the smallest case known runs as a
    script in fresh processes of another Python: it is fixed, still there, fails in another way, or
    can't be judged, with the reason. Fixed needs three clean runs, and that the same script still
    fails with the torch that is installed here. No store is written to.

    Exits with 0 when all are fixed, 1 otherwise, 3 when all that could be read are fixed, but a
    store could not be read in full.
    """
    from torchreel.analysis.triage.summaries import triage as grouped
    from torchreel.commands.rendering import streams
    from torchreel.commands.views import recheck as view
    from torchreel.errors import TorchreelError
    from torchreel.minifier.repro.releases import SurveyOptions, to_recheck
    from torchreel.minifier.repro.releases import recheck as ask
    from torchreel.store import Store, parse, queries
    from torchreel.store.addressing import default_store

    release = to_recheck(python)
    found = grouped(stores or [default_store()])
    options = SurveyOptions(runs, tuple(imports or ()), trust, streams.step)
    rows: list[view.Recheck] = []
    for group in found.groups:
        view.begin(group)
        where = parse(group.smallest)
        try:
            with Store.open(where.store) as store:
                result = ask(store, queries.compile_at(store, where), release, options)
                rows.append(view.Recheck(group, result.state, result.detail))
        except TorchreelError as error:
            rows.append(view.Recheck(group, "unjudged", str(error)))
    view.report(release.torch, found, rows, json=json)
    raise typer.Exit(found.exit_status if all(row.state == "fixed" for row in rows) else 1)

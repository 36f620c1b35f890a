"""`torchreel releases`: find the release of torch that broke or fixed something."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import AddressArgument, ImportOption, JsonOption, TrustOption
from torchreel.commands.stores import writable_store


def releases(
    address: AddressArgument = "",
    release: Annotated[
        list[str] | None,
        typer.Option("--release", metavar="VERSION", help="Try this one, as in 2.14 or 2.14.0."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="VERSION", help="Try all from this one on (2.12)."),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="PATH", help="Try the torch of this environment."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=1, help="Run N times under each release.")
    ] = 3,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Make environments that are missing, unasked.")
    ] = False,
    imports: ImportOption = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Find the releases of torch that broke it and fixed it.

    The smallest case known (a reduced one if there is any, else the recorded one) runs as a script
    under each release, three times in fresh processes: the same failure, another one, no failure,
    or it can't be judged, with the reason. All releases are tried, for failures come back. What
    follows from it goes into the issue that 'export' writes.

    The releases are those since 2.12 and this environment's own, or those of --release, --since and
    --python. Their environments are made with pip in the user's cache when they are first needed,
    up to 7 GB each, after a question or with --yes; nothing else uses the network.

    Exits with 0 when a release shows the failure, 1 when none does.
    """
    from torchreel.commands.rendering import streams
    from torchreel.commands.views import releases as view
    from torchreel.minifier.repro.releases import SurveyOptions, releases_to_try, survey
    from torchreel.releases.environments import wanted_versions
    from torchreel.store import parse, queries

    where = parse(address)
    wanted = wanted_versions(release or (), since, named=bool(python))
    options = SurveyOptions(runs, tuple(imports or ()), trust, streams.step)
    with writable_store(where) as store:
        row = queries.compile_at(store, where)
        tried = releases_to_try(wanted, python or (), view.permission(yes=yes), streams.step)
        found = survey(store, row, tried, options)
        kept = store.writable
        status = view.report(f"{store.target}#{row.place}", found, json=json, kept=kept)
    raise typer.Exit(status)

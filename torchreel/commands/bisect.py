"""`torchreel bisect`: find the part of the compiler that a failure comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    ImportOption,
    JsonOption,
    RunLimitOption,
    SearchTimeOption,
)
from torchreel.commands.stores import writable_store


def bisect(
    address: AddressArgument = "",
    step: Annotated[
        str | None,
        typer.Option(
            "--step", metavar="STEP", help="Take this one step only, as in inductor:lowerings:3."
        ),
    ] = None,
    imports: ImportOption = None,
    limit_time: SearchTimeOption = None,
    limit_runs: RunLimitOption = None,
    json: JsonOption = False,
) -> None:
    """Find the part of the compiler that a failure comes from.

    First the backend (eager, aot_eager, aot_eager_decomp_partition, inductor), then the family of
    passes, the lowerings or decompositions of it, then which application of that part, then a
    config entry that cures. Runs the reduced case if there is one; only the recorded failure
    counts. Inductor's cache directory is not touched.

    Exits with 0 when it was found, 1 when the failure does not happen here. With --step, takes one
    step again, whatever is known of it: exits with 0 when the failure was there, 1 when not.
    """
    from torchreel.commands.views import bisect as view
    from torchreel.minifier.bisect import BisectStep, parse_step, take_step
    from torchreel.minifier.bisect import bisect as run
    from torchreel.minifier.options import Budget, MinifyOptions
    from torchreel.store import parse, queries

    where = parse(address)
    options = MinifyOptions(imports=tuple(imports or ()), limits=Budget(limit_time, limit_runs))
    chosen = None if step is None else BisectStep() if step == "as-it-is" else parse_step(step)
    with writable_store(where) as store:
        row = queries.compile_at(store, where)
        place = f"{store.target}#{row.place}"
        if chosen is not None:
            tried = take_step(store, row, chosen, options=options)
            raise typer.Exit(view.report_step(place, tried, json=json))
        found = run(store, row, options=options, on_step=view.show_step)
        raise typer.Exit(view.report(place, found, json=json))

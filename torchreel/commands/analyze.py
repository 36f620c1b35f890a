"""`torchreel analyze`: find the first node with a wrong value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    CompareOption,
    ImportOption,
    JsonOption,
    TrustOption,
)


def analyze(
    address: AddressArgument = "",
    compare: CompareOption = "default",
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as an SVG.")
    ] = None,
    imports: ImportOption = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Find the first node whose compiled result is wrong.

    The last graph of a compile is run on invented inputs, in eager mode, in float64 and compiled.
    Exits with 1 when the results differ by more than rounding explains, 0 when they do not. Where
    they agree without a config entry or pass of the recorded compile, that is no answer: it exits
    with 3 and names what is missing.
    """
    from torchreel.commands.views import analyze as view
    from torchreel.minifier.accuracy.analyze import analyze as run
    from torchreel.store import Store, parse, queries

    where = parse(address)
    if svg is not None:
        view.refuse_place(svg)
    with Store.open(where.store) as store:
        row = queries.compile_at(store, where)
        found = run(store, row, imports=imports or (), comparator=compare, trust=trust)
        status = view.report(f"{store.target}#{row.place}", found, as_json=json, svg=svg)
    raise typer.Exit(status)

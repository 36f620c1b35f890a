"""`torchreel export`: write a case as a script, an issue and a test, or a recording as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    ChecksOption,
    ForceOption,
    ImportOption,
    OtherFailureOption,
    OutputOption,
    TrustOption,
)

if TYPE_CHECKING:
    from torchreel.store import Address


def export(
    address: AddressArgument = "",
    output: OutputOption = Path("torchreel-repro"),
    kind: Annotated[
        str,
        typer.Option(
            "--format", metavar="repro|issue|test|all|torch-trace|perfetto", help="What to write."
        ),
    ] = "all",
    other_failure: OtherFailureOption = None,
    imports: ImportOption = None,
    checks: ChecksOption = 3,
    trust: TrustOption = False,
    force: ForceOption = False,
) -> None:
    """Write the best case known: a script, an issue, a test.

    A reduced one if there is any, else the recorded one. The script is run in fresh processes in
    which only torch can be imported, and so is the test; exits with 1 when the script does not show
    the recorded failure there.

    With '--format torch-trace', write what TORCH_TRACE would have written instead, for tlparse: of
    a compile, of a recording, or of every recording of a program. With '--format perfetto', a
    timeline for ui.perfetto.dev or chrome://tracing: a process for each recording or rank, with its
    compiles, their stages, failures and cache lookups.
    """
    from torchreel.store import Store, parse, queries

    where = parse(address)
    if kind == "torch-trace":
        _export_trace(where, output, force)
        return
    if kind == "perfetto":
        _export_timeline(where, output, force)
        return
    from torchreel.commands.rendering import streams
    from torchreel.commands.views import export as view
    from torchreel.minifier.repro import ExportOptions, export_other_failure
    from torchreel.minifier.repro import export as run

    options = ExportOptions(
        output,
        view.formats(kind),
        force,
        tuple(imports or ()),
        checks=checks,
        trust=trust,
        say=streams.say,
    )
    with Store.open(where.store) as store:
        if other_failure is not None:
            exported = export_other_failure(store, other_failure, options)
            status = view.report(store.target, exported)
        else:
            row = queries.compile_at(store, where)
            exported = run(store, row, options)
            status = view.report(f"{store.target}#{row.place}", exported)
    raise typer.Exit(status)


def _export_trace(where: Address, output: Path, force: bool) -> None:
    from torchreel.commands.views import trace as view
    from torchreel.store import Store
    from torchreel.store.trace.export import export_trace

    with Store.open(where.store) as store:
        view.report_export(export_trace(store, where, output, force=force), output)


def _export_timeline(where: Address, output: Path, force: bool) -> None:
    from torchreel.commands.views import timeline as view
    from torchreel.store import Store

    with Store.open(where.store) as store:
        view.write_timeline(store, where, output, force=force)

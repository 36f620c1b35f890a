"""`torchreel query`: ask a store with SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import (
    CsvOption,
    JsonOption,
    LinesOption,
    TableOption,
    TimeLimitOption,
)


def query(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="STORE[#RECORDING[/COMPILE]]")],
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT of SQLite's SQL.")],
    json: JsonOption = False,
    nl: LinesOption = False,
    csv: CsvOption = False,
    table: TableOption = False,
    kind: Annotated[
        str, typer.Option("--format", metavar="table|json|ndjson|csv", help="The same, by name.")
    ] = "",
    limit_time: TimeLimitOption = None,
) -> None:
    """Ask a store with one SELECT.

    There are the views compiles, failures, stages, graph_nodes, guards, symbols, recompiles,
    graph_breaks, cache_decisions and kernels, of what the address covers; each has a column
    'compile', by which they join. They are filled when a statement names them, so that they have
    what the file keeps compressed. The tables of the file are main.NAME.

    The statement can read, and nothing else: neither write, nor open other files, nor load
    extensions. It is ended after a minute, or after --limit-time.
    """
    from torchreel.analysis.query.query import SECONDS
    from torchreel.analysis.query.query import query as ask
    from torchreel.analysis.query.views import QueryScope
    from torchreel.commands.rendering import listing
    from torchreel.commands.rendering.unreadable import as_far_as_readable
    from torchreel.commands.views import query as view
    from torchreel.errors import UsageError
    from torchreel.store import Store, parse

    if kind and (json or nl or csv or table):
        raise UsageError("Use --format or one of --json, --nl, --csv and --table, not both.")
    written = (
        view.format_of(kind) if kind else listing.chosen(json=json, nl=nl, csv=csv, table=table)
    )
    where = parse(address)
    with Store.open(where.store) as store, as_far_as_readable(store):
        scope = QueryScope.at(store, where)
        seconds = SECONDS if limit_time is None else limit_time
        view.report(ask(scope, statement, seconds=seconds), written)

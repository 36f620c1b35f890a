"""`torchreel push`: send recordings into another store."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import JsonOption, StoresArgument, seconds_option, without_password


def push(
    stores: StoresArgument = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="STORE", help="The store to send to.", callback=without_password
        ),
    ] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until SIGINT or SIGTERM, then send what is left.")
    ] = False,
    every: Annotated[
        float, seconds_option("--every", "With --watch: how often to look for what is new.")
    ] = 10.0,
    json: JsonOption = False,
) -> None:
    """Send recordings into another store, what is new alone.

    A recording is sent when its process has ended, whole or not at all, with its own number in the
    other store. What is there already is not sent again, from whatever machine; so the command can
    be run again after any end, and many at once. Failures and reductions that come to a recording
    later are sent as well. Replays stay here.

    Exits with 3 where something could not be sent; the rest is.
    """
    from torchreel.analysis.triage.failure_kinds import kinds_of
    from torchreel.commands.views import push as view
    from torchreel.errors import UsageError
    from torchreel.store.addressing import default_store
    from torchreel.store.sending.watch import push_all, push_until_stopped

    if not to:
        raise UsageError(
            "Say where to push: --to postgresql+psycopg://USER@HOST/DATABASE, or --to STORE."
        )
    sources = stores or [default_store()]
    reporter = view.PushPrinter(to, json=json)
    if watch:
        push_until_stopped(sources, to, every, reporter, kinds_of)
    else:
        push_all(sources, to, reporter, kinds_of)
    raise typer.Exit(reporter.finish())

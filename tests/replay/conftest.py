"""The replays of a test process fork from a warm one: most of a replay is importing torch.

That this changes nothing is tested by `test_nursery`; the tests of the command line replay in
processes of their own.
"""

from collections.abc import Iterator

import pytest

from torchreel.replay.nursery import warm


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    with warm():
        yield

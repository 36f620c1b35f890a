"""What holds for every test: the same examples in every run, and grad mode as it was.

`HYPOTHESIS_PROFILE=explore make test` tries new ones.
"""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _grad_mode() -> Iterator[None]:
    """Leave grad mode to the next test as this one found it, whatever a graph of it did."""
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)

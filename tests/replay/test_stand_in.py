"""The CUDA device that stands in computes as the CPU does, and refuses what it can't."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.replay.stand_in_program import CHECKS


@pytest.fixture(scope="module")
def held() -> list[str]:
    command = [sys.executable, "-m", "tests.replay.stand_in_program"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr)
    return done.stdout.split()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to ask")
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_the_device_computes_as_the_cpu(held: list[str], name: str) -> None:
    assert name in held

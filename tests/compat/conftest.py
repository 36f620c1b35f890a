"""Warm processes for the replays of this folder, as in tests/replay."""

from tests.replay.conftest import _warm, pytest_fixture_setup, pytest_pyfunc_call

__all__ = ["_warm", "pytest_fixture_setup", "pytest_pyfunc_call"]

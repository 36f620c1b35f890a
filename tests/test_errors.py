"""The tree of errors: its picture is true, and each carries the exit status of the contract."""

import inspect

import pytest

from torchreel import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]
STATUS = {"TorchreelError": 1, "UsageError": 2, "BudgetSpent": 4, "QueryTimeSpent": 4}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_picture_shows_every_error(kind: type[errors.TorchreelError]) -> None:
    assert f" {kind.__name__} " in (errors.__doc__ or "").replace("\n", " \n")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_exit_status(kind: type[errors.TorchreelError]) -> None:
    refused = 3 if issubclass(kind, errors.RefusedError) else 1
    assert kind.exit_status == STATUS.get(kind.__name__, refused)

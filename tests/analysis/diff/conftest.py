"""Recordings to be compared: one process records one function in many ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.analysis.diff import DiffReport, LayerDiff, diff
from torchreel.store import Store
from torchreel.store.addressing import Address

TEXT = """
def f({x}, k):
    if {x}.shape[0] > 3:
        return torch.{op}({x} @ {x}.t()) * k
    return {x} * k
"""


def program(op: str = "relu", name: str = "x") -> Callable[..., torch.Tensor]:
    """A function whose frame has one name and place, whatever its operator and its argument."""
    namespace = {"torch": torch}
    exec(compile(TEXT.format(op=op, x=name), "program.py", "exec"), namespace)
    return namespace["f"]  # type: ignore[return-value]


def run(
    function: Callable[..., torch.Tensor],
    *sizes: int,
    dynamic: bool | None = True,
    **config: object,
) -> None:
    """Compile a function and call it with matrices of these numbers of rows."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(**config), suppress(Exception):
        compiled = torch.compile(function, backend="aot_eager", dynamic=dynamic, fullgraph=True)
        for size in sizes:
            compiled(torch.ones(size, 6), 2)


PROGRAMS: dict[str, Callable[[], None]] = {
    "plain": lambda: run(program(), 5),
    "again": lambda: run(program(), 5),
    "renamed": lambda: run(program(name="another"), 5),
    "other operator": lambda: run(program("tanh"), 5),
    "other branch": lambda: run(program(), 2),
    "other hint": lambda: run(program(), 7),
    "static": lambda: run(program(), 5, dynamic=False),
    "config": lambda: run(program(), 5, specialize_int=True),
    "recompiled": lambda: run(program(), 5, 2),
    "failing": lambda: run(program("no_such_function"), 5),
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one recording for each of `PROGRAMS`."""
    path = tmp_path_factory.mktemp("diff") / "run.db"
    run(program(), 4)  # what a process does once is behind it
    for record_one in PROGRAMS.values():
        with torchreel.record(path):
            record_one()
    return path


@pytest.fixture
def store(recorded: Path) -> Iterator[Store]:
    with Store.open(recorded) as store:
        yield store


def address(store: Store, name: str, compile_id: str | None = None) -> Address:
    """Where a program's recording, or a compile of it, is."""
    return Address(store.target, list(PROGRAMS).index(name) + 1, compile_id)


def compared(store: Store, left: str, right: str, *only: str) -> DiffReport:
    """The diff of two programs' recordings."""
    return diff((store, address(store, left)), (store, address(store, right)), only)


def layers(report: DiffReport) -> dict[str, LayerDiff]:
    """The layers of a diff of one compile, by name."""
    (recording,) = report.recordings
    (_,) = recording.compiles
    return {layer.layer: layer for layer in recording.layers}


def differing(report: DiffReport) -> set[str]:
    return {name for name, layer in layers(report).items() if layer.differences}

"""A real failure of torch in a program full of canaries, recorded and shared once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.minifier.real import shared_worker
from tests.minifier.recorded import record
from torchreel.sharing.share import Shared, ShareOptions, share

CANARIES: dict[str, str | int | float] = {
    "class": "Kqzvwbxj", "attribute": "hjvqkzwd", "buffer": "wqpzkvbd", "input": "zqkvjxwb",
    "option": "vbqzjkxw", "local": "xwvqkzjb", "text": "jkzqvxwb", "key": "qvkzxjwb",
    "operator": "kzwqvjxb", "namespace": "bzvqkjxw", "docstring": "qjxzkvbw",
    "float": 0.730581235791, "integer": 918273645, "value": 0.218283746592,
}  # fmt: skip


@torch.library.custom_op("bzvqkjxw::kzwqvjxb", mutates_args=())
def kzwqvjxb(zqkvjxwb: torch.Tensor, jkzqvxwb: str, factor: float) -> torch.Tensor:
    """An operator of the program's own."""
    return zqkvjxwb.clone()


@kzwqvjxb.register_fake
def _(zqkvjxwb: torch.Tensor, jkzqvxwb: str, factor: float) -> torch.Tensor:
    return torch.empty_like(zqkvjxwb)


class Kqzvwbxj(torch.nn.Module):
    """A model about qjxzkvbw, around pytorch#188213."""

    def __init__(self) -> None:
        super().__init__()
        self.hjvqkzwd = torch.nn.Linear(8, 8)
        self.register_buffer("wqpzkvbd", torch.tensor([0.25, 0.5]))

    def forward(self, zqkvjxwb: torch.Tensor, vbqzjkxw: float = 1.0) -> object:
        xwvqkzjb = self.hjvqkzwd(zqkvjxwb) * 0.730581235791
        xwvqkzjb = torch.ops.bzvqkjxw.kzwqvjxb(xwvqkzjb, "jkzqvxwb", 0.730581235791) + 918273645
        table = torch.tensor([0.218283746592, 3.0]) + self.wqpzkvbd
        pooled = F.adaptive_max_pool1d(zqkvjxwb, 0)
        return {"qvkzxjwb": xwvqkzjb}, table, torch.scatter(pooled, -1, pooled, pooled)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of the failure."""
    folder = tmp_path_factory.mktemp("original")
    with torch.no_grad():
        return record(folder / "run.db", Kqzvwbxj().eval(), torch.rand(4, 8))


@pytest.fixture(scope="session")
def shared(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """What was shared of it."""
    path = tmp_path_factory.mktemp("shared") / "bundle.db"
    return share(str(original), path, options=ShareOptions(path), oracle=shared_worker())

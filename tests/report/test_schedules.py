"""Collectives, estimates and what exports run into: real compiles, and the page that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch._inductor.utils import fresh_cache
from torch.export import Dim, draft_export, export
from torch.testing._internal.distributed.fake_pg import FakeStore

import torchreel
from tests.report.conftest import Open, document_of
from torchreel.analysis.schedules import disagreements
from torchreel.report import render
from torchreel.report.document import CompileDetails, ReportDocument
from torchreel.report.packing import unpacked

NAME = "torch.ops._c10d_functional.{}.default".format
WAIT = NAME("wait_tensor")


@contextmanager
def as_rank(rank: int) -> Iterator[Any]:
    """A group of two ranks, of which this process is one."""
    dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def step(x: torch.Tensor, group: Any, odd: bool) -> torch.Tensor:
    y = collectives.all_reduce(x.sin(), "sum", group)
    if odd:
        return collectives.all_gather_tensor(y.cos(), 0, group)
    return collectives.reduce_scatter_tensor(y.cos(), "sum", 0, group)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> ReportDocument:
    """Two ranks that compile one function, of which the second gathers where the first scatters."""
    path = tmp_path_factory.mktemp("ranks") / "run.db"
    with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch(log_tlparse=True):
        patch.setenv("WORLD_SIZE", "2")
        for rank in range(2):
            patch.setenv("RANK", str(rank))
            torch._dynamo.reset()
            with fresh_cache(), as_rank(rank) as group, torchreel.record(path):
                torch.compile(step)(torch.ones(4, 2), group, rank == 1)
    torch._dynamo.reset()
    return document_of(path)


def details(document: ReportDocument, place: int) -> CompileDetails:
    at = document.compiles[place].details
    assert at is not None
    return msgspec.json.decode(unpacked(document.packed[at]), type=CompileDetails)


def test_a_compile_has_its_collectives_and_estimates(ranks: ReportDocument) -> None:
    (schedule,) = details(ranks, 0).schedules
    assert schedule.partition == "inference"
    assert schedule.collectives == [
        NAME("all_reduce_"), WAIT, NAME("reduce_scatter_tensor"), WAIT,
    ]  # fmt: skip
    assert schedule.differs == []
    kinds = [row.kind for row in schedule.estimates]
    assert kinds.count("collective") == 2
    assert kinds.count("compute") > 2


def test_ranks_part_at_the_first_other_collective(ranks: ReportDocument) -> None:
    assert ranks.ranks is not None
    (graph,) = ranks.ranks.graphs
    assert (graph.compile, graph.frame, graph.parts_at) == ("0/0", "step", 2)
    assert [(row.ranks, row.collectives[2]) for row in graph.schedules] == [
        ([0], NAME("reduce_scatter_tensor")),
        ([1], NAME("all_gather_into_tensor")),
    ]
    assert len(graph.ns) == 2
    assert None not in graph.ns


def test_code_that_calls_other_collectives_than_its_schedule() -> None:
    code = f"# {NAME('all_reduce_')}(x)\n    {NAME('all_reduce_')}(x)\n    {WAIT}(x)\n"
    assert disagreements([NAME("all_reduce_"), WAIT], code) == []
    assert disagreements([NAME("all_reduce_"), WAIT], code.replace(f"    {WAIT}(x)\n", "")) == [
        f"{WAIT} is 1 times in the schedule, 0 times in the code",
        "1 more collectives than waits",
    ]
    assert disagreements([WAIT], code) == [
        f"{NAME('all_reduce_')} is 0 times in the schedule, 1 times in the code"
    ]


def test_the_page_shows_where_the_collectives_part(
    ranks: ReportDocument, look: Open, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(ranks), encoding="utf-8")
    page = look(file).go("/", "#schedules")
    seen = page.locator("#schedules").inner_text()
    assert "Collectives part at number 3 of 0/0 step inference" in seen
    parted = page.locator("#schedules .parted").all_inner_texts()
    assert parted == ["reduce_scatter_tensor", "all_gather_into_tensor"]
    page.click("#schedules a")
    page.wait_for_selector(".schedule")
    assert "Collectives of the inference (4)" in page.locator(".schedule").inner_text()
    assert "all_reduce_" in page.locator(".estimates").inner_text()


# -- exports --------------------------------------------------------------------------------------


@torch.library.custom_op("torchreel_report::unfaked", mutates_args=())
def unfaked(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("torchreel_report::misfaked", mutates_args=())
def misfaked(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@misfaked.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[0] + 1, *x.shape[1:])


class Exported(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y = torch.ops.torchreel_report.misfaked(torch.ops.torchreel_report.unfaked(x))
        if n.item() > 3:
            y = y + 1
        return y if x.shape[0] > 4 else x


class Undecided(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x + 1 if n.item() > 3 else x


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> ReportDocument:
    """A draft of an export with all that can go wrong, and an export that fails."""
    path = tmp_path_factory.mktemp("exports") / "run.db"
    given = torch.ones(5, 3), torch.tensor(7)
    with torchreel.record(path):
        draft_export(Exported(), given, dynamic_shapes={"x": {0: Dim("b")}, "n": None})
        with suppress(Exception):
            export(Undecided(), given)
    return document_of(path)


def test_what_an_export_ran_into(exports: ReportDocument) -> None:
    place = next(at for at, row in enumerate(exports.compiles) if row.status == "ok")
    found = details(exports, place).exports
    assert [(row.kind, row.line.code if row.line else "") for row in found] == [
        ("missing fake kernel", CALL),
        ("wrong fake kernel", CALL),
        ("data-dependent", "if n.item() > 3:"),
        ("guard", "return y if x.shape[0] > 4 else x"),
    ]
    assert "torchreel_report.unfaked.default has no fake kernel" in found[0].text
    assert "mismatch between fake value" in found[1].text
    (undecided,) = details(exports, len(exports.compiles) - 1).exports
    assert undecided.kind == "data-dependent"
    assert undecided.line is not None
    assert undecided.line.code == "return x + 1 if n.item() > 3 else x"
    failure = next(group for group in exports.failures if "data-dependent" in group.message)
    assert failure.line == undecided.line


CALL = "y = torch.ops.torchreel_report.misfaked(torch.ops.torchreel_report.unfaked(x))"


def test_the_page_shows_it(exports: ReportDocument, look: Open, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(exports), encoding="utf-8")
    place = next(at for at, row in enumerate(exports.compiles) if row.status == "ok")
    seen = look(file).go(f"/c/{place}", "#exports").locator("#exports").inner_text()
    assert "What the export ran into (4)" in seen
    assert CALL in seen

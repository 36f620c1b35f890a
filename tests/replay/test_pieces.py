"""Parts that a backend of the program compiles apart replay without that backend."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchreel
from tests import split_backends
from torchreel.replay.replay import replay
from torchreel.store import Store, queries
from torchreel.store.records import Compile


def _recorded(path: Path, entry: str) -> list[Compile]:
    return _record(path, lambda: split_backends.run(2, entry))


def _record(path: Path, program: Callable[[], None]) -> list[Compile]:
    torch._dynamo.reset()
    with torchreel.record(path), torch._inductor.utils.fresh_cache():
        program()
    with Store.open(path) as store:
        return queries.compiles(store, queries.recordings(store)[-1].id)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["standalone", "compile_fx", "aot", "aot_backend"])
def test_each_part_replays_identically(tmp_path: Path, entry: str) -> None:
    _, *parts = _recorded(tmp_path / "run.db", entry)
    stages = {"joint", "forward"} | ({"codegen"} if "aot" not in entry else set())
    with Store.open(tmp_path / "run.db", write=True) as store:
        for part in parts:
            verdict = replay(store, part)
            assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
            assert {row.stage for row in verdict.compared} >= stages
    assert len(parts) == (4 if entry == "standalone" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_inputs_of_a_part_in_inference_mode_are_what_they_were(
    tmp_path: Path, outside: bool
) -> None:
    """As vLLM compiles: Dynamo's fakes are no inference tensors, also where the program's are."""

    def program() -> None:
        with torch.inference_mode(outside):
            x, weight = torch.ones(4, 16), torch.nn.Parameter(torch.ones(16, 16), False)
        with torch.inference_mode():
            compiled = torch.compile(
                lambda x, weight: (x @ weight).relu() + 1,
                backend=split_backends.in_inference_mode, dynamic=True,
            )  # fmt: skip
            compiled(x, weight)

    _, part = _record(tmp_path / "run.db", program)
    with Store.open(tmp_path / "run.db", write=True) as store:
        verdict = replay(store, part)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")


def test_the_whole_needs_the_backend_and_names_its_parts(tmp_path: Path) -> None:
    whole, *_ = _recorded(tmp_path / "run.db", "aot")
    with Store.open(tmp_path / "run.db", write=True) as store:
        verdict = replay(store, whole)
    assert verdict.verdict == "refused"
    assert "splitting" in verdict.detail
    assert "1/0/0/0 to 1/0/0/1" in verdict.detail


def test_what_is_code_of_the_program_is_named(tmp_path: Path) -> None:
    _, part, *_ = _recorded(tmp_path / "run.db", "own_inner")
    with Store.open(tmp_path / "run.db", write=True) as store:
        verdict = replay(store, part)
    assert verdict.verdict == "refused"
    assert "inner_compile" in verdict.detail


@pytest.mark.slow
def test_regions_of_both_directions_replay_identically(tmp_path: Path) -> None:
    _, *regions = _record(tmp_path / "run.db", split_backends.run_region)
    assert [row.frame_name for row in regions] == ["__marked_inductor_submod0"] * 2
    with Store.open(tmp_path / "run.db", write=True) as store:
        verdicts = [replay(store, region) for region in regions]
    assert [(row.verdict, row.detail) for row in verdicts] == [("identical", "")] * 2


@pytest.mark.slow
def test_a_graph_that_no_compile_is_around_replays_identically(tmp_path: Path) -> None:
    _, *alone = _record(tmp_path / "run.db", split_backends.run_alone)
    assert [row.compile_id for row in alone] == ["-", "-"]
    with Store.open(tmp_path / "run.db", write=True) as store:
        for compile in alone:
            verdict = replay(store, compile)
            assert (verdict.verdict, verdict.detail) == ("identical", "")
            assert "forward" in {row.stage for row in verdict.compared if row.kind != "graph"}

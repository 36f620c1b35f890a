"""Inductor's stages, its generated code (from a cache too), and the first run.

Matrix products are calls of library functions: Inductor generates code for them, and no C++
compiler is needed.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.lowering import lowerings
from torch._inductor.utils import fresh_inductor_cache, run_fw_bw_and_get_code

from tests.recorder import programs
from tests.recorder.conftest import Record
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.store import Store, queries

MM = torch.ops.aten.mm.default


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@pytest.fixture(autouse=True)
def _no_caches() -> Iterator[None]:
    with config.patch(fx_graph_cache=False, compile_threads=1):
        yield


def test_an_inference_graph_goes_through_every_stage(record: Record) -> None:
    log = record(lambda: torch.compile(square)(torch.ones(2, 2)))
    assert log.stages() == [
        ("dynamo", "", "ok"),
        ("pre_grad", "", "ok"),
        ("joint", "", "ok"),
        ("joint", "", "ok"),
        ("forward", "inference", "ok"),
        ("post_grad", "inference", "ok"),
        ("lowering", "inference", "ok"),
        ("codegen", "inference", "ok"),
        ("guards", "", "ok"),
        ("run", "inference", "ok"),
    ]
    assert log.graphs() == [("dynamo", ""), ("forward", "inference"), ("post_grad", "inference")]
    found = [(row.entry, row.partition) for row in queries.checkpoints(log.store, log.compile)]
    assert found == [("graph", ""), ("aot", "inference")]
    (code,) = queries.output_codes(log.store, log.compile)
    assert code.partition == "inference"
    assert b"extern_kernels.mm" in log.store.read_blob(code.digest)
    assert log.lost() == []


def test_the_generated_code_is_the_same_with_and_without_us(record: Record) -> None:
    code: list[list[str]] = []

    def program() -> None:
        torch._dynamo.reset()
        x = torch.ones(2, 2, requires_grad=True)
        found = run_fw_bw_and_get_code(lambda: torch.compile(square)(x))[1]
        # Their names carry a number that counts the compiles of the process.
        code.append([re.sub(r"\d+_(forward|backward)", r"\1", text) for text in found])

    program()
    record(program)
    assert len(code[0]) == 2
    assert code[0] == code[1]


def test_a_late_backward_belongs_to_the_compile_of_its_forward(record: Record) -> None:
    x = torch.ones(2, 2, requires_grad=True)
    log = record(lambda: torch.compile(square)(x).sum().backward())
    assert log.compile.status == "ok"
    runs = [stage[:2] for stage in log.stages() if stage[0] == "run"]
    assert runs == [("run", "forward"), ("run", "backward")]
    codes = queries.output_codes(log.store, log.compile)
    assert [code.partition for code in codes] == ["forward", "backward"]
    docs = [
        CheckpointDoc.from_bytes(log.store.read_blob(row.digest))
        for row in queries.checkpoints(log.store, log.compile)
    ]
    assert [doc.partition for doc in docs] == ["", "forward", "backward"]
    assert ("backward", "backward") in log.graphs()


def test_a_failing_lowering(record: Record) -> None:
    def refuse(*args: Any, **kwargs: Any) -> object:
        raise NotImplementedError("no such lowering")

    before = lowerings[MM]
    lowerings[MM] = refuse
    try:
        log = record(lambda: torch.compile(square)(torch.ones(2, 2)))
    finally:
        lowerings[MM] = before
    (failure,) = queries.failures(log.store)
    assert (failure.stage, failure.partition) == ("lowering", "inference")
    assert failure.exception_type == "torch._inductor.exc.InductorError"
    aot = queries.checkpoints(log.store, log.compile)[-1]
    assert (aot.entry, failure.checkpoint_id) == ("aot", aot.id)
    assert log.stages()[-1] == ("lowering", "inference", "failed")


def test_a_failing_pass(record: Record) -> None:
    with config.patch(post_grad_custom_post_pass=lambda graph: 1 / 0):
        log = record(lambda: torch.compile(square)(torch.ones(2, 2)))
    (failure,) = queries.failures(log.store)
    assert failure.stage == "post_grad"
    assert ("post_grad", "inference") not in log.graphs()


def test_nothing_stays_on_the_path_of_later_calls(record: Record) -> None:
    from torch._inductor.output_code import CompiledFxGraph

    seen = []
    post_compile = CompiledFxGraph.post_compile

    def spy(self: CompiledFxGraph, *args: Any, **kwargs: Any) -> None:
        post_compile(self, *args, **kwargs)
        seen.append((self, self.current_callable))

    CompiledFxGraph.post_compile = spy  # type: ignore[method-assign]
    try:
        record(lambda: torch.compile(square)(torch.ones(2, 2)))
    finally:
        CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign]
    ((graph, original),) = seen
    assert graph.current_callable is original


@torch.library.custom_op("reel::picky", mutates_args=())
def picky(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("I do not like this call")


@picky.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_error_of_the_first_run_is_a_failure_of_the_stage_run(record: Record) -> None:
    log = record(lambda: torch.compile(lambda x: picky(x) @ x)(torch.ones(2, 2)))
    (failure,) = queries.failures(log.store)
    assert (failure.stage, failure.partition) == ("run", "inference")
    assert failure.exception_type == "ValueError"
    assert failure.checkpoint_id == queries.checkpoints(log.store, log.compile)[-1].id
    assert log.stages()[-1] == ("run", "inference", "failed")
    assert log.compile.status == "failed"


LATER_CALL = """
calls = []

@torch.library.custom_op("reel::tired", mutates_args=())
def tired(x: torch.Tensor) -> torch.Tensor:
    calls.append(1)
    if len(calls) == 3:
        raise ValueError("that is enough")
    return x.clone()

tired.register_fake(torch.empty_like)
compiled = torch.compile(lambda x: tired(x) @ x)
for _ in range(3):
    compiled(torch.ones(2, 2))
"""


@pytest.mark.slow
def test_an_uncaught_error_of_a_later_call_belongs_to_its_compile(path: Path) -> None:
    assert programs.run(LATER_CALL, path) == 1
    with Store.open(path) as store:
        (failure,) = queries.failures(store)
        (compile,) = queries.compiles(store, 1)
    assert (failure.stage, failure.partition) == ("run", "inference")
    assert (failure.exception_type, failure.message) == ("ValueError", "that is enough")
    assert (failure.compile_id, compile.status) == (compile.id, "failed")


def test_generated_code_that_comes_from_a_cache_is_recorded(record: Record) -> None:
    found = []
    with fresh_inductor_cache(), config.patch(fx_graph_cache=True):
        for _ in ("cold", "warm"):
            torch._dynamo.reset()
            x = torch.ones(2, 2, requires_grad=True)
            log = record(lambda x=x: torch.compile(square)(x).sum().backward())  # type: ignore[misc]
            compile = queries.compiles(log.store, log.recording.id)[-1]
            codes = queries.output_codes(log.store, compile)
            stages = [stage[0] for stage in log.stages(compile)]
            found.append(([(row.partition, row.digest) for row in codes], "lowering" in stages))
    assert [partition for partition, _ in found[0][0]] == ["forward", "backward"]
    assert found[0][0] == found[1][0]
    assert [lowered for _, lowered in found] == [True, False]

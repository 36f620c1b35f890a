"""Row 15: caches with their keys, measured choices, the machine, seeds."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._functorch import config as aot_config
from torch._inductor import config
from torch._inductor.utils import fresh_inductor_cache

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries


@pytest.fixture(autouse=True)
def _one_worker() -> Iterator[None]:
    with config.patch({"compile_threads": 1, "cpp_cache_precompile_headers": False}):
        yield


def seen(log: RecordedLog, kind: str) -> list[tuple[str, Any]]:
    events = queries.events(log.store, log.recording, kind=f"nondeterminism.{kind}")
    return [(event.name, event.data) for event in events]


def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def test_the_machine_as_a_backend_finds_it(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    log = record(lambda: torch.compile(square, backend="eager")(torch.ones(2, 2)))
    assert torch.equal(torch.get_rng_state(), before)
    ((_, data),) = seen(log, "machine")
    assert data["cpus"] == [os.cpu_count(), len(os.sched_getaffinity(0))]
    assert data["threads"] == [torch.get_num_threads(), torch.get_num_interop_threads()]
    assert data["capability"] == torch.backends.cpu.get_cpu_capability()
    assert (data["hash_seed"], data["seed"]) == ("7", 1234)
    assert (data["compile_workers"], data["deterministic"]) == (1, False)
    assert log.lost() == []


def test_both_caches_miss_and_hit_under_one_key(record: Record) -> None:
    found: dict[str, list[tuple[str, str]]] = {}
    with (
        fresh_inductor_cache(),
        config.patch(fx_graph_cache=True),
        aot_config.patch(enable_autograd_cache=True),
    ):
        for run in ("cold", "warm"):
            torch._dynamo.reset()
            log = record(lambda: torch.compile(square)(torch.ones(2, 2)))
            asked = seen(log, "cache")
            found[run] = [(name, data["outcome"]) for name, data in asked]
            keys = {data["key"] for name, data in asked if name == "AOTAutogradCache"}
            found.setdefault("keys", []).extend((key, "") for key in keys)
    assert found["cold"] == [("AOTAutogradCache", "miss"), ("FxGraphCache", "miss")]
    assert found["warm"] == [("FxGraphCache", "hit"), ("AOTAutogradCache", "hit")]
    first, second = found["keys"]
    assert first == second
    assert len(first[0]) > 20


def test_a_cache_that_is_bypassed_says_why(record: Record) -> None:
    with (
        fresh_inductor_cache(),
        config.patch(fx_graph_cache=True, post_grad_custom_post_pass=lambda graph: None),
        aot_config.patch(enable_autograd_cache=True),
    ):
        log = record(lambda: torch.compile(square)(torch.ones(2, 2)))
    bypassed = [(name, data) for name, data in seen(log, "cache") if data["outcome"] == "bypass"]
    assert [name for name, _ in bypassed] == ["AOTAutogradCache", "FxGraphCache"]
    assert all(data["key"] is None for _, data in bypassed)
    assert all("custom" in data["reason"].lower() for _, data in bypassed)


def test_vector_instructions_that_are_chosen_for_generated_code(record: Record) -> None:
    def refuse(*args: object) -> None:
        raise OSError("no compiler today")

    from torch._inductor import cpp_builder, cpu_vec_isa

    isa = cpu_vec_isa.pick_vec_isa()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpp_builder, "_run_compile_cmd", refuse)
        log = record(lambda: torch.compile(torch.sin)(torch.ones(64)))
    ((name, data),) = seen(log, "vector_isa")
    assert (name, data["bits"]) == (str(isa), isa.bit_width())
    assert data["flags"] == isa.build_arch_flags()


def test_vector_instructions_are_noted_once_in_a_compile_whose_backward_comes_late(
    record: Record,
) -> None:
    def two_frames() -> None:
        x = torch.ones(64, requires_grad=True)
        first = torch.compile(lambda x: x.sin().cos())(x)
        second = torch.compile(lambda x: x.exp().cos())(x)
        (first + second).sum().backward()

    with fresh_inductor_cache():
        log = record(two_frames)
    for compile in queries.compiles(log.store, log.recording.id):
        stages = [stage.stage for stage in queries.stages(log.store, compile)]
        assert stages.count("codegen") == 2, stages
        events = queries.events(log.store, compile, "nondeterminism.vector_isa")
        assert len(list(events)) == 1, compile.place


def test_measured_choices(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError("measured is enough")

    settings: dict[str, Any] = {
        "max_autotune": True,
        "max_autotune_gemm_backends": "ATEN,CPP",
        "fx_graph_cache": False,
        "autotune_local_cache": False,
        "freezing": True,
    }
    monkeypatch.setattr("torch._inductor.graph.GraphLowering.codegen", refuse)
    with config.patch(settings), torch.no_grad():
        module = torch.nn.Linear(64, 64, bias=False)
        log = record(lambda: torch.compile(module)(torch.ones(64, 64)))
    ((_, data),) = seen(log, "autotune")
    assert data["choices"] >= len(data["milliseconds"]) >= 2
    assert data["inputs"][0] == data["inputs"][-1] == [64, 64]
    times = dict(data["milliseconds"])
    assert times[data["chosen"]] == min(times.values())


def test_properties_of_a_device_that_are_read(record: Record) -> None:
    from torch._inductor.runtime.hints import DeviceProperties

    def program() -> None:
        DeviceProperties.create(torch.device("cpu"))
        DeviceProperties.create(torch.device("cpu"))

    ((name, data),) = seen(record(program), "device")
    assert name.startswith("cpu")
    assert data["properties"]["multi_processor_count"] == (
        DeviceProperties.create(torch.device("cpu")).multi_processor_count
    )

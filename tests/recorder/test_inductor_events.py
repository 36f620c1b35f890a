"""Row 14: passes, lowerings, fusions, kernels, calls of libraries, compile commands."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config, cpp_builder, cpu_vec_isa
from torch._inductor.exc import CppCompileError

from tests.recorder.conftest import Record, RecordedLog
from torchreel.recorder.probes.inductor_events import without_directories
from torchreel.store import queries


@pytest.fixture(autouse=True)
def _no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is compiled, whatever an earlier run has left on this machine."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    settings: dict[str, Any] = {
        "fx_graph_cache": False,
        "compile_threads": 1,
        "cpp_cache_precompile_headers": False,
    }
    with config.patch(settings):
        yield


def seen(log: RecordedLog, kind: str) -> list[tuple[str, Any]]:
    events = queries.events(log.store, log.recording, kind=f"inductor.{kind}")
    return [(event.name, event.data) for event in events]


def mixed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A library's kernel, an operator without a lowering, and two loops that are fused."""
    return (x @ w).relu().sum(-1), x.sin().cumsum(0) + x.exp()


@pytest.mark.slow
def test_a_compile_from_lowering_to_the_compiler(record: Record) -> None:
    log = record(lambda: torch.compile(mixed)(torch.ones(2, 3), torch.ones(3, 3)))
    lowered = [
        (name, data["target"], data["how"], data["result"]) for name, data in seen(log, "lowering")
    ]
    assert lowered == [
        ("mm", "aten.mm.default", "lowering", "ExternKernelOut"),
        ("relu", "aten.relu.default", "lowering", "Pointwise"),
        ("sum_1", "aten.sum.dim_IntList", "lowering", "Pointwise"),
        ("sin", "aten.sin.default", "lowering", "Pointwise"),
        ("cumsum", "aten.cumsum.default", "fallback", "MultiOutput"),
        ("exp", "aten.exp.default", "lowering", "Pointwise"),
        ("add", "aten.add.Tensor", "lowering", "Pointwise"),
    ]
    extern = [(data["kernel"], data["type"], data["origins"]) for _, data in seen(log, "extern")]
    assert extern == [
        ("extern_kernels.mm", "ExternKernelOut", ["mm"]),
        ("torch.ops.aten.cumsum.default", "FallbackKernel", ["cumsum", "sin"]),
        (None, "MultiOutput", ["cumsum", "sin"]),
    ]
    kernels = seen(log, "kernel")
    assert [data["backend"] for _, data in kernels] == ["cpp"] * len(kernels)
    origins = {origin for _, data in kernels for origin in data["origins"]}
    assert origins == {"relu", "sum_1", "sin", "add", "exp"}
    # Each of them is in the generated code, under the same name.
    (code,) = queries.output_codes(log.store, log.compile)
    text = log.store.read_blob(code.digest).decode()
    assert all(f"{name} = " in text for name, _ in kernels)
    ((_, schedule),) = seen(log, "schedule")
    operations = [member for row in schedule["nodes"] for member in row[3]]
    assert sorted(operations) == [f"op{number}" for number in range(len(operations))]
    assert {row[1] for row in schedule["nodes"]} >= {"SchedulerNode", "ExternKernelSchedulerNode"}
    commands = seen(log, "cpp_compile")
    assert len(commands) >= len(kernels)
    assert {data["outcome"] for _, data in commands} == {"ok"}
    arguments = [argument for _, data in commands for argument in data["arguments"]]
    assert "-shared" in arguments
    assert [a for a in arguments if "/" in a.replace(".../", "")] == []
    assert log.lost() == []


def test_fusions_and_refusals_with_their_reason(record: Record) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ w).relu().sum(-1), x.sin().cumsum(0) + x.t().exp().t(), x * 2

    cpu_vec_isa.pick_vec_isa()  # asks the compiler once in a process, and keeps what it said
    with pytest.MonkeyPatch.context() as patch:
        # What is fused is decided when the compiler is about to be called.
        patch.setattr(cpp_builder, "_run_compile_cmd", _refuse)
        log = record(lambda: torch.compile(f)(torch.ones(2, 3), torch.ones(3, 3)))
    refused = [(data["nodes"], data["reason"]) for _, data in seen(log, "no_fuse")]
    assert refused == [
        (["op2", "op5"], "intermediate nodes between node1 & node2"),
        (["op2", "op5_op6"], "intermediate nodes between node1 & node2"),
    ]
    fused = {"nodes": ["op5", "op6"], "result": "FusedSchedulerNode"}
    assert seen(log, "fuse") == [("op5_op6", fused)]
    ((_, schedule),) = seen(log, "schedule")
    assert schedule["nodes"][-1] == [
        "op5_op6",
        "FusedSchedulerNode",
        "cpu",
        ["op5", "op6"],
        ["add", "exp", "mul", "permute", "permute_1"],
    ]
    outcome = seen(log, "cpp_compile")[-1][1]
    assert (outcome["outcome"], outcome["message"]) == ("OSError", "no compiler today")


def _refuse(*args: object) -> None:
    raise OSError("no compiler today")


def test_a_graph_that_passes_change_is_kept(record: Record) -> None:
    def program() -> None:
        with config.patch(joint_custom_post_pass=_swap):
            torch.compile(lambda x: x.mm(x).mm(x))(torch.eye(2))

    log = record(program)
    families = dict(seen(log, "passes"))
    assert list(families) == ["pre_grad", "joint", "post_grad"]
    assert families["pre_grad"]["changed"] is False
    joint = families["joint"]
    assert (joint["changed"], joint["removed"]) == (True, ["mm_1"])
    assert joint["nodes"] == [4, 3]
    assert ("joint", "inference") in log.graphs()
    assert ("pre_grad", "") not in log.graphs()
    passes = [(data["subsystem"], name) for name, data in seen(log, "pass")]
    assert ("joint_graph_passes", "remove_noop_ops") in passes
    assert ("post_grad_passes", "stable_sort") in passes


def _swap(graph: torch.fx.Graph) -> None:
    """A pass that drops the second of two products."""
    *_, last = graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    last.replace_all_uses_with(last.args[0])  # type: ignore[arg-type]
    graph.erase_node(last)


def test_a_lowering_that_raises(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.lowering import lowerings

    def refuse(*args: Any, **kwargs: Any) -> object:
        raise NotImplementedError("no such lowering")

    monkeypatch.setitem(lowerings, torch.ops.aten.mm.default, refuse)
    log = record(lambda: torch.compile(lambda x: x @ x)(torch.eye(2)))
    ((name, data),) = seen(log, "lowering")
    assert (name, data["how"], data["result"]) == ("mm", "raised", None)
    assert data["function"] == "LoweringException"


def test_a_thread_that_compiles_works_for_the_only_compile(record: Record) -> None:
    """As it is with more than one compile worker, where the kernels are compiled by a pool."""

    def run(command: str) -> None:
        with pytest.raises(CppCompileError):
            cpp_builder.run_compile_cmd(command, "/")

    def backend(gm: torch.fx.GraphModule, inputs: object) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run, "false --inside").result()
        return gm.forward

    log = record(
        lambda: (
            torch.compile(torch.sin, backend=backend)(torch.ones(2)),
            ThreadPoolExecutor(1).submit(run, "false --outside").result(),
        )
    )
    found = queries.events(log.store, log.recording, kind="inductor.cpp_compile")
    assert [(event.name, event.compile_id) for event in found] == [
        ("false", log.compile.id),
        ("false", None),
    ]


def test_a_compiler_that_refuses(record: Record, tmp_path: Path) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("int main( {")
    log = record(lambda: cpp_builder.run_compile_cmd(f"g++ {source} -o {source}.o", str(tmp_path)))
    ((name, data),) = seen(log, "cpp_compile")
    assert (name, data["outcome"]) == ("g++", "CppCompileError")
    assert data["arguments"] == [".../broken.cpp", "-o", ".../broken.cpp.o"]
    assert "error" in data["message"]
    assert str(tmp_path) not in data["message"]


def test_nothing_of_a_directory_is_kept() -> None:
    command = "/usr/bin/g++ -I/home/me/include -L/opt/lib -DNAME=/home/me/x a/b.cpp -O3 -lc"
    assert without_directories(command) == [
        ".../g++", "-I.../include", "-L.../lib", "-DNAME=.../x", ".../b.cpp", "-O3", "-lc",
    ]  # fmt: skip

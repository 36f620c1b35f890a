"""Everything that TORCH_TRACE writes is in the store: in the same run, record by record.

Each group of programs runs once, in one process, with both switched on.  `benchmarks.completeness`
does the same with Inductor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.recorder.trace_programs import MODELS_, OPERATORS, PROGRAMS
from torchreel.replay import replay
from torchreel.store import Json, Store, queries
from torchreel.store.trace.export import is_trace_event
from torchreel.store.trace.trace_records import Record, read

ROOT = Path(__file__).parents[2]

# What only the trace of that program has in the payload of one of its records.
EXPECTED = {
    "gpt2": "modeling_gpt2.py", "gpt2-dynamic": "modeling_gpt2.py", "bert": "modeling_bert.py",
    "llama": "modeling_llama.py", "cnn": "aten.convolution_backward", "cond": "higher_order.cond(",
    "while_loop": "higher_order.while_loop(", "scan": "higher_order.scan(",
    "associative_scan": "_vmap_increment_nesting", "map": "higher_order.map_impl(",
    "invoke_subgraph": "higher_order.invoke_subgraph(",
    "flex_attention": "higher_order.flex_attention(",
    "checkpoint": "higher_order.tag_activation_checkpoint(",
    "auto_functionalized": "higher_order.auto_functionalized_v2(", "wrap": "higher_order.wrap(",
    "recompile": "on purpose", "triton_kernel": "higher_order.triton_kernel_wrapper_functional(",
}  # fmt: skip


@dataclass(frozen=True)
class Item:
    """A record of the trace, wherever it was read."""

    kind: str
    metadata: Json
    payload: str | None
    place: str


@dataclass(frozen=True)
class Traces:
    """The same run as TORCH_TRACE wrote it and as the store has it."""

    torch: list[Item]
    store: list[Item]
    error: str = ""
    """What the program ended with, when it failed."""
    path: Path = Path()


def run(folder: Path, backend: str, *programs: str) -> Traces:
    """Run programs with TORCH_TRACE and the recorder, and read what both have.

    TORCH_TRACE takes no secrets out of its text, so here the recorder does not either.
    """
    variables = {
        **os.environ, "TORCH_TRACE": str(folder / "trace"), "TORCHREEL": f"full:{folder}/run.db",
        "TORCHREEL_REDACT": "none",
        "TORCHINDUCTOR_COMPILE_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }  # fmt: skip
    script = Path(__file__).with_name("trace_programs.py")
    command = [sys.executable, str(script), backend, *programs]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=folder)
    error = done.stderr if done.returncode else ""
    path = folder / "run.db"
    return Traces(list(_of_torch(folder / "trace")), list(_of_store(path)), error, path)


def _of_torch(directory: Path) -> list[Item]:
    (file,) = directory.iterdir()
    with file.open("rb") as stream:
        found = list(read(stream, file.stat().st_mtime_ns))
    items = []
    for record in found:
        assert isinstance(record, Record), record
        assert record.intact, record.metadata
        payload = None if record.payload is None else record.payload.decode()
        place = f"{record.pathname}:{record.lineno}"
        items.append(Item(record.kind, _json(record.metadata), payload, place))
    return items


def _of_store(path: Path) -> list[Item]:
    items = []
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        assert queries.lost(store, recording.id) == []
        for event in filter(is_trace_event, queries.events(store, recording)):
            assert isinstance(event.data, dict)
            data = dict(event.data)
            place = f"{data.pop('pathname')}:{data.pop('lineno')}"
            payload = None if event.payload is None else store.read_blob(event.payload).decode()
            items.append(Item(event.kind, _json(data), payload, place))
    return items


def _json(value: object) -> Json:
    """As it is after a round trip: NaN has no JSON form, and a tuple is a list."""
    found: Json = json.loads(json.dumps(value), parse_constant=lambda name: name.lower())
    return found


def split(items: list[Item]) -> dict[str, list[Item]]:
    """The records of each program, by its name."""
    found: dict[str, list[Item]] = {}
    here: list[Item] = []
    for item in items:
        if item.kind == "program" and isinstance(item.metadata, dict):
            program = item.metadata["program"]
            assert isinstance(program, dict)
            here = found.setdefault(str(program["name"]), [])
        here.append(item)
    return found


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Traces]:
    """Both traces of each program."""
    found: dict[str, Traces] = {}
    for group in (MODELS_, OPERATORS):
        both = run(tmp_path_factory.mktemp("completeness"), "aot_eager", *group)
        assert not both.error, both.error
        assert len(both.torch) == len(both.store)
        torch, store = split(both.torch), split(both.store)
        for name in group:
            found[name] = Traces(torch[name], store.get(name, []), path=both.path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_record_of_torch_trace_is_in_the_store(
    traces: dict[str, Traces], program: str
) -> None:
    found = traces[program]
    # Not by comparing nothing: a compile begins, has graphs and ends, and the program is that one.
    kinds = [item.kind for item in found.torch]
    assert len(kinds) > 25
    assert {"dynamo_start", "dynamo_output_graph", "compilation_metrics", "artifact"} <= set(kinds)
    assert any(EXPECTED[program] in (item.payload or "") for item in found.torch)
    assert [item.kind for item in found.store] == kinds
    for ours, theirs in zip(found.store, found.torch, strict=True):
        assert ours == theirs


@pytest.mark.slow
@pytest.mark.skipif("triton_kernel" not in PROGRAMS, reason="needs the extra 'triton'")
def test_a_triton_kernel_is_there_with_its_source(traces: dict[str, Traces]) -> None:
    with Store.open(traces["triton_kernel"].path) as store:
        (recording,) = queries.recordings(store)
        called, functional = queries.events(store, recording, "hop.call")[:2]
        (kernel,) = queries.events(store, recording, "hop.kernel")
        assert kernel.payload is not None
        source = store.read_blob(kernel.payload).decode()
    assert (called.name, functional.name) == (
        "triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional",
    )  # fmt: skip
    path = ROOT / "tests/recorder/triton_program.py"
    line = 1 + path.read_text().splitlines().index("@triton.jit  # type: ignore[untyped-decorator]")
    assert (kernel.name, kernel.data) == (
        "double",
        {
            "node": "triton_kernel_wrapper_mutation",
            "function": f"tests.recorder.triton_program.double ({path}:{line})",
            "grid": [[1, 1, 1]],
            "arguments": ["x", "y"],
            "constants": {"BLOCK": 16, "n": 16},
            "configurations": [],
            "key": [],
            "names": {"tl": ["module", "triton.language"]},
        },
    )
    assert source.startswith("def double(x, y, n, BLOCK: tl.constexpr)")
    with Store.open(traces["triton_kernel"].path, write=True) as store:
        verdict = replay(store, queries.compiles(store, recording.id)[0])
    assert verdict.verdict == "refused"
    assert "the graph calls Triton kernels of the program's own" in verdict.detail


@pytest.mark.slow
def test_each_program_says_what_no_other_does(traces: dict[str, Traces]) -> None:
    for name in traces:
        found = {
            other
            for other, both in traces.items()
            if any(EXPECTED[name] in (item.payload or "") for item in both.store)
        }
        assert name in found
        assert len(found) <= 2, (name, found)


@pytest.mark.slow
def test_every_event_is_read_as_what_its_type_says(traces: dict[str, Traces]) -> None:
    """The types of `torchreel.events` are true of what stands in a store, field by field."""
    kinds = set()
    for path in {both.path for both in traces.values()}:
        with Store.open(path) as store:
            (recording,) = queries.recordings(store)
            for event in queries.events(store, recording):
                if event.fields is not None:
                    again = json.dumps(msgspec.to_builtins(event.fields), sort_keys=True)
                    assert again == json.dumps(event.data, sort_keys=True)  # 7 is not 7.0
                    kinds.add(event.kind)
    assert len(kinds) >= 45

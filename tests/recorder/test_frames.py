"""What Dynamo does with frames: caches, recompiles, restarts, graph breaks, skips."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event

Function = Callable[[torch.Tensor], torch.Tensor]


def double(x: torch.Tensor, n: float = 2.0) -> torch.Tensor:
    return x * n


def stop(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return stop(y).cos()


def loops(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        torch._dynamo.graph_break()
        x = x + 1
    return x


def traces_nothing(x: torch.Tensor) -> torch.Tensor:
    return x


def events(log: RecordedLog, kind: str) -> list[Event]:
    """Events of one kind, in all compiles and outside of them."""
    return queries.events(log.store, log.recording, kind)


def places(log: RecordedLog) -> dict[int | None, str | None]:
    """Compiles by row: '0/1_1' is the second attempt at the second compile of a frame."""
    return {None: None} | {row.id: row.place.partition("/")[2] for row in log.compiles}


def data(event: Event) -> Any:
    return event.data


def functions(log: RecordedLog, event: Event) -> list[str]:
    return [frame.name for frame in queries.stack(log.store, event)]


def line(function: Callable[..., object], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


def test_an_attempt_begins_with_its_code_and_its_caller(record: Record) -> None:
    def caller() -> None:
        torch.compile(double, backend="eager")(torch.ones(3))

    log = record(caller)
    (start,) = events(log, "frame.start")
    assert start.name == "double"
    assert start.compile_id == log.compile.id
    assert data(start) == {
        "file": __file__,
        "line": line(double, 0),
        "qualname": "double",
        "arguments": ["x", "n"],
        "free": [],
        "globals": [],
        "lines": line(double, 1),
        "instructions": len(double.__code__.co_code),
        "resumes": False,
    }
    assert functions(log, start)[-1] == "caller"
    (cache,) = events(log, "frame.cache")
    assert cache.seq < start.seq
    assert data(cache) == {
        "entries": 0, "same_objects": 0, "all_regions": 0, "exceeded": "", "limit": 8,
    }  # fmt: skip
    assert log.lost() == []


def test_a_recompile_names_the_guard_that_failed_in_each_entry(record: Record) -> None:
    def program() -> None:
        compiled = torch.compile(double, backend="eager", dynamic=False)
        compiled(torch.ones(3))
        compiled(torch.ones(4))
        compiled(torch.ones(4), 3.0)

    log = record(program)
    first, second = events(log, "frame.recompile")
    assert [data(event) for event in (first, second)] == [{"entries": 1}, {"entries": 2}]
    of = places(log)
    assert [of[event.compile_id] for event in (first, second)] == ["0/1", "0/2"]
    misses = events(log, "frame.cache_miss")
    assert [miss.cause for miss in misses] == [first.seq, second.seq, second.seq]
    # The newest entry of a cache is asked first.
    assert [miss.name for miss in misses] == ["0/0", "0/1", "0/0"]
    assert data(misses[0]) == {
        "reason": "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4",
        "guards": ["tensor 'L['x']' size mismatch at index 0. expected 3, actual 4"],
        "source": "L['x']",
        "held": data(misses[0])["held"],
    }
    assert data(misses[1])["guards"] == ["L['n'] == 2.0"]
    assert data(misses[1])["held"] > 0
    assert [data(event)["entries"] for event in events(log, "frame.cache")] == [0, 1, 2]


def test_another_backend_fails_no_guard(record: Record) -> None:
    def program() -> None:
        for backend in ("eager", "aot_eager"):
            torch.compile(double, backend=backend)(torch.ones(3))

    log = record(program)
    (miss,) = events(log, "frame.cache_miss")
    assert (data(miss)["guards"], data(miss)["held"]) == ([], None)
    assert data(miss)["reason"].startswith("0/0: BACKEND_MATCH failure")


def test_a_graph_break_is_seen_with_its_speculation_and_restart(record: Record) -> None:
    log = record(lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))
    kinds = ("frame.graph_break", "frame.speculation_failed", "frame.restart", "frame.start")
    found = [
        event
        for event in queries.events(log.store, log.recording)
        if event.kind in kinds and places(log)[event.compile_id] in ("0/0", "0/0_1")
    ]
    start, broken, speculation, restart, again = found
    assert [event.kind for event in found] == ["frame.start", *kinds]
    assert [places(log)[event.compile_id] for event in found] == [*["0/0"] * 4, "0/0_1"]
    assert broken.name == "Call to `torch._dynamo.graph_break()`"
    assert data(broken)["outcome"] == "handled"
    assert "User-inserted graph break" in data(broken)["reason"]
    assert [(f.name, f.line) for f in queries.stack(log.store, broken)] == [
        ("breaks", line(breaks, 2)), ("stop", line(stop, 1)),
    ]  # fmt: skip
    reason = data(restart)["reason"]
    assert data(speculation) == {
        "file": __file__,
        "line": line(breaks, 2),
        "offset": data(speculation)["offset"],
        "instruction": "CALL",
        "reason": reason,
    }
    assert reason.startswith("Call to `torch._dynamo.graph_break()`")
    assert data(restart) == {"type": "SpeculationRestartAnalysis", "reason": reason, "attempt": 0}
    assert data(again) == data(start)


def test_a_resumed_frame_says_so(record: Record) -> None:
    log = record(lambda: torch.compile(stop, backend="eager")(torch.ones(3)))
    starts = events(log, "frame.start")
    assert [(event.name, data(event)["resumes"]) for event in starts][-1] == (
        "torch_dynamo_resume_in_stop_at_" + str(line(stop, 1)), True,
    )  # fmt: skip
    # The frame that resumes is called by the one that was broken.
    assert functions(log, starts[-1])[-1] == "stop"


def test_a_break_that_a_full_graph_forbids_is_raised(record: Record) -> None:
    log = record(lambda: torch.compile(breaks, backend="eager", fullgraph=True)(torch.ones(3)))
    (broken,) = events(log, "frame.graph_break")
    assert broken.name == "Call to `torch._dynamo.graph_break()`"
    assert data(broken)["outcome"] == "raised"
    assert functions(log, broken) == ["breaks", "stop"]
    assert places(log)[broken.compile_id] == "0/0"
    assert events(log, "frame.restart") == []
    (failure,) = queries.failures(log.store)
    assert failure.exception_type == "torch._dynamo.exc.Unsupported"


def _no_branch(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.skip_frame()
    return x.sin()


@pytest.mark.parametrize(
    ("function", "reason", "strategy"),
    [
        (loops, "an error was suppressed during compilation", ["SKIP", "DEFAULT"]),
        (traces_nothing, "Dynamo decided to skip the frame while tracing", ["SKIP", "DEFAULT"]),
        (_no_branch, "", ["SKIP", "DEFAULT"]),
    ],
)
def test_a_skipped_frame_has_a_reason_and_its_compile(
    record: Record, function: Function, reason: str, strategy: list[str]
) -> None:
    log = record(lambda: torch.compile(function, backend="eager")(torch.ones(3)))
    (skip,) = [e for e in events(log, "frame.skip") if data(e)["file"] == __file__]
    name = function.__name__
    assert (skip.name, data(skip)["line"]) == (name, line(function, 0))
    assert data(skip)["reason"].startswith(reason)
    assert data(skip)["strategy"] == strategy
    assert places(log)[skip.compile_id] == "0/0"


def test_a_frame_of_a_skipped_file_is_skipped_outside_of_any_compile(record: Record) -> None:
    log = record(lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))
    (skip,) = [e for e in events(log, "frame.skip") if e.name == "graph_break"]
    assert skip.compile_id is None
    assert data(skip)["reason"] == "frame is in the Dynamo skipfiles list"


def test_a_full_cache_is_told(record: Record) -> None:
    def program() -> None:
        with torch._dynamo.config.patch(recompile_limit=1):
            compiled = torch.compile(double, backend="eager")
            compiled(torch.ones(3))
            compiled(torch.ones(3), 3.0)

    log = record(program)
    _, cache = events(log, "frame.cache")
    assert data(cache) == {
        "entries": 1, "same_objects": 1, "all_regions": 1, "exceeded": "recompile_limit",
        "limit": 1,
    }  # fmt: skip
    (skip,) = [e for e in events(log, "frame.skip") if e.name == "double"]
    assert data(skip)["strategy"] == ["RUN_ONLY", "RUN_ONLY"]
    assert places(log)[skip.compile_id] == places(log)[cache.compile_id] == "0/1"
    assert len(events(log, "frame.start")) == 1

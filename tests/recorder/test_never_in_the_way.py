"""Whatever happens to the recorder, the program does what it would have done without it."""

import contextlib
import ctypes
import functools
import gc
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.recorder import programs
from tests.recorder.conftest import Record
from torchreel.recorder import attach, failing_open
from torchreel.recorder.attach import Attachment
from torchreel.recorder.event_log import log
from torchreel.recorder.probes import PROBES
from torchreel.recorder.recorder import Recorder
from torchreel.recorder.watchdog import Watchdog
from torchreel.store import Store, queries

PROGRAM = """
import atexit, json
from collections import Counter
seen, raised = Counter(), set()
atexit.register(lambda: print("raised at", json.dumps(sorted(raised)), flush=True))

def always(place):
    raised.add(place)
    raise RuntimeError(f"injected at {place}")

def when_leaving(place):
    seen[place] += 1
    if seen[place] % 2 == 0:
        raise RuntimeError(f"injected at {place}")

def when_running(place):
    if place == "run":
        raise RuntimeError(f"injected at {place}")

for failing_open.inject in (always, when_leaving, when_running):
    torch._dynamo.reset()
    x = torch.ones(2, 2, requires_grad=True)
    out = torch.compile(lambda x: x @ x)(x)
    out.sum().backward()
    print(out.tolist(), x.grad.tolist(), flush=True)
    print(torch.compile(lambda x: x @ x.T)(x.detach()).tolist(), flush=True)
sys.exit(7)
"""
REACHED = {
    "torch._dynamo.convert_frame._compile",
    "torch._dynamo.convert_frame.trace_frame",
    "torch._dynamo.convert_frame.DynamoOutput.build_guards",
    "torch._dynamo.output_graph.OutputGraph._call_user_compiler",
    "torch._functorch._aot_autograd.graph_compile.aot_dispatch_autograd_graph",
    "torch._functorch._aot_autograd.graph_compile._aot_stage2b_bw_compile",
    "torch._inductor.compile_fx._compile_fx_inner",
    "torch._inductor.compile_fx._recursive_post_grad_passes",
    "torch._inductor.graph.GraphLowering.run",
    "torch._inductor.graph.GraphLowering.codegen",
    "torch._inductor.output_code.CompiledFxGraph.post_compile",
}
PRINTED = "[[2.0, 2.0], [2.0, 2.0]] [[4.0, 4.0], [4.0, 4.0]]\n[[2.0, 2.0], [2.0, 2.0]]\n"


@pytest.mark.slow
def test_a_recorder_that_raises_in_every_hook_changes_nothing(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert programs.run(PROGRAM, path) == 7
    printed = capfd.readouterr().out
    assert PRINTED * 3 in printed
    raised = set(json.loads(printed.rpartition("raised at ")[2]))
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        lost = queries.lost(store, recording.id)
        statuses = {row.status for row in queries.compiles(store, recording.id)}
    assert recording.exit_status == 7
    assert statuses == {"ok"}
    assert {row.reason for row in lost} == {"RuntimeError"}
    assert {row.place for row in lost} >= raised | {"run"}
    # The program reaches every layer: its hooks are most of those that there are.
    assert raised >= {"trace", *REACHED}
    assert len(raised) > len(PROBES) / 3


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["zstandard", "torchreel.recorder.session"])
def test_an_installation_that_is_broken_does_not_break_import_torch(
    tmp_path: Path, broken: str
) -> None:
    breaker = f"""
import sys
sys.modules[{broken!r}] = None  # importing it raises ImportError
"""
    (tmp_path / "sitecustomize.py").write_text(breaker)
    program = "import torch; print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ, "TORCHREEL": f"full:{tmp_path / 'run.db'}", "PYTHONPATH": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "tensor([2.])\n")
    assert "torchreel lost something" in done.stderr


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_a_store_that_can_not_be_written_costs_only_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("this is no store")
    with torchreel.record(tmp_path / "file"):
        out = torch.compile(sine, backend="eager")(torch.zeros(2))
    assert out.tolist() == [0.0, 0.0]
    assert (tmp_path / "file").read_text() == "this is no store"


def refuse(gm: torch.fx.GraphModule, inputs: object) -> object:
    raise ValueError("no")


def _seen_by_the_program() -> list[object]:
    torch._dynamo.reset()
    try:
        torch.compile(sine, backend=refuse)(torch.ones(3))
    except RuntimeError as error:  # TorchDynamoException is one
        return [type(error), str(error), sorted(vars(error)), traceback.format_exc()]
    return []


@pytest.mark.parametrize("verbose", [False, True])
def test_an_exception_is_the_same_with_and_without_us(path: Path, verbose: bool) -> None:
    with torch._dynamo.config.patch(verbose=verbose):
        without = _seen_by_the_program()
        with torchreel.record(path):
            assert _seen_by_the_program() == without
    assert "ValueError: no" in str(without[-1])
    with Store.open(path) as store:
        assert len(queries.failures(store)) == 1


def test_state_that_dynamo_guards_on_is_left_alone(record: Record) -> None:
    states = []

    def backend(gm: torch.fx.GraphModule, inputs: object) -> object:
        states.append(
            (
                torch.is_grad_enabled(),
                torch._C._len_torch_function_stack(),
                torch._C._len_torch_dispatch_stack(),
                torch.get_rng_state().sum().item(),
            )
        )
        return gm.forward

    torch.manual_seed(0)
    with torch.no_grad():
        torch.compile(sine, backend=backend)(torch.ones(2))
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        event_log = record(lambda: torch.compile(sine, backend=backend)(torch.ones(2)))
    assert states[0] == states[1]
    assert event_log.compile.status == "ok"


@pytest.mark.parametrize("backend", ["eager", refuse])
def test_no_tensor_is_kept_alive(path: Path, backend: Any) -> None:
    with torchreel.record(path):
        x = torch.ones(2, requires_grad=True)
        alive = weakref.ref(x)
        with contextlib.suppress(RuntimeError):
            torch.compile(sine, backend=backend)(x)
        del x
        torch._dynamo.reset()
        gc.collect()
        assert alive() is None


def test_a_compile_inside_a_hook_is_not_recorded(record: Record) -> None:
    compiled = torch.compile(lambda x: x.cos(), backend="eager")

    def compile_too(place: str) -> None:
        if place.endswith("_call_user_compiler"):
            failing_open.inject = None
            compiled(torch.ones(2))

    def program() -> None:
        failing_open.inject = compile_too
        torch.compile(sine, backend="eager")(torch.ones(3))

    event_log = record(program)
    assert [row.frame_name for row in event_log.compiles] == ["sine"]


def test_the_first_loss_of_a_kind_is_logged_once() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    failing_open.log.addHandler(handler)
    failing_open.losses.reset()
    try:
        for _ in range(3):
            with failing_open.fail_open("here"):
                raise ValueError("again")
    finally:
        failing_open.log.removeHandler(handler)
    assert failing_open.losses.snapshot() == [("ValueError", "here", 3, "again")]
    assert len(records) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_not_swallowed(kind: type[BaseException]) -> None:
    with pytest.raises(kind), failing_open.fail_open("here"):
        raise kind


class TooLong(Exception):
    """What a program's time limit raises."""


def _ring(number: int, frame: object, *_: object) -> None:
    raise TooLong("the time is over")


class Bell:
    def __call__(self, number: int, frame: object) -> None:
        _ring(number, frame)

    def ring(self, number: int, frame: object) -> None:
        _ring(number, frame)


class Rung:
    def __init__(self, number: int, frame: object) -> None:
        _ring(number, frame)


def _ring_once(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TooLong("the time is over")


HANDLERS = {
    "function": _ring, "partial": functools.partial(_ring), "method": Bell().ring, "object": Bell(),
    "class": Rung, "decorated": torch.no_grad()(_ring), "gives the signal back": _ring_once,
}  # fmt: skip


@pytest.fixture
def handle() -> Iterator[Callable[[Any], None]]:
    """Sets the program's handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler) and None
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_signal_handler_raises_meanwhile_is_not_swallowed(
    handler: str, handle: Callable[[Any], None]
) -> None:
    handle(HANDLERS[handler])
    failing_open.losses.reset()
    with pytest.raises(TooLong), failing_open.fail_open("here"):
        signal.raise_signal(signal.SIGUSR1)
    assert failing_open.losses.snapshot() == []


def _wait_for(kind: type[Exception]) -> None:
    """Be busy until another thread sends an exception to this one."""
    this = ctypes.c_ulong(threading.get_ident())
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    threading.Timer(0.1, send, (this, ctypes.py_object(kind))).start()
    while True:
        pass


# Of a package that has nothing to do with what runs here.
Stopped = type("Stopped", (Exception,), {"__module__": "a_library.timeouts"})


@pytest.mark.parametrize("kind", [Stopped, TimeoutError])
def test_what_another_thread_sends_meanwhile_is_not_swallowed(kind: type[Exception]) -> None:
    failing_open.losses.reset()
    with pytest.raises(kind), failing_open.fail_open("here"):
        _wait_for(kind)
    assert failing_open.losses.snapshot() == []


def _raises(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [TimeoutError(), Stopped("why"), Stopped(), StopIteration(), MemoryError()]
)
def test_what_only_looks_as_if_it_was_sent_is_ours(error: Exception) -> None:
    failing_open.losses.reset()
    with failing_open.fail_open("here"):
        _raises(error)
    with failing_open.fail_open("here"):
        next(iter(()))
    kinds = {type(error).__name__, "StopIteration"}
    assert {row[0] for row in failing_open.losses.snapshot()} == kinds


@torch.no_grad()
def _fails(*args: object) -> None:
    raise TooLong("ours")


def test_what_only_looks_like_a_signal_handler_is_ours(handle: Callable[[Any], None]) -> None:
    handle(HANDLERS["decorated"])
    failing_open.losses.reset()
    for args in ((), (sys._getframe(),), (signal.NSIG, sys._getframe()), (1, sys)):
        with failing_open.fail_open("here"):
            _fails(*args)
    assert failing_open.losses.snapshot() == [("TooLong", "here", 4, "ours")]


@pytest.mark.parametrize(
    ("owner", "name"), [(Attachment, "detach"), (Watchdog, "stop"), (log.EventLog, "pause")]
)
def test_an_alarm_while_a_recording_ends_leaves_nothing_behind(
    path: Path,
    owner: Any,
    name: str,
    handle: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._dynamo import convert_frame

    original, rung = getattr(owner, name), []

    def step(self: object) -> None:
        if not rung:
            rung.append(True)
            signal.raise_signal(signal.SIGUSR1)
        original(self)

    handle(_ring)
    before = convert_frame._compile, sys.excepthook
    torchreel.install(path)
    torch.compile(sine, backend="eager")(torch.ones(3))
    assert convert_frame._compile is not before[0]
    monkeypatch.setattr(owner, name, step)
    with pytest.raises(TooLong):
        torchreel.uninstall()
    assert attach.active() is None
    assert (convert_frame._compile, sys.excepthook) == before
    with Store.open(path) as store:
        assert [row.status for row in queries.recordings(store)] == ["done"]


def test_an_alarm_as_an_exception_is_seen_leaves_no_compile_open(
    path: Path, handle: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle(_ring)
    original = Recorder.saw
    left = 0

    def saw(self: Recorder, error: BaseException) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGUSR1)
        original(self, error)

    monkeypatch.setattr(Recorder, "saw", saw)
    with torchreel.record(path) as recorder:
        for number in itertools.count(1):
            left = number
            torch._dynamo.reset()
            with pytest.raises(Exception, match=r"the time is over|no"):
                torch.compile(sine, backend=refuse)(torch.ones(3))
            assert recorder.spans.here.stack == []
            assert recorder.spans.outermost == {}
            if left > 0:  # it was not seen so often
                break
    assert number > 4


@pytest.mark.parametrize(
    "place",
    [
        "torch._dynamo.convert_frame._compile",
        "torch._dynamo.convert_frame.DynamoOutput.build_guards",
        "torch._dynamo.output_graph.OutputGraph._call_user_compiler",
        "boundary",
        "run",
    ],
)
@pytest.mark.parametrize("mode", ["full", "flight"])
def test_an_alarm_inside_a_hook_ends_the_compile_and_nothing_else(
    path: Path, place: str, mode: str, handle: Callable[[Any], None]
) -> None:
    handle(_ring)

    def ring(here: str) -> None:
        if here == place:
            failing_open.inject = None
            signal.raise_signal(signal.SIGUSR1)

    with torchreel.record(path, mode) as recorder:
        failing_open.inject = ring
        backend = "inductor" if place == "run" else "aot_eager"
        with pytest.raises(Exception, match="the time is over"):
            torch.compile(sine, backend=backend)(torch.ones(3))
        assert failing_open.inject is None
        assert recorder.spans.here.stack == []
        out = torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.zeros(3))
        assert out.tolist() == [1.0, 1.0, 1.0]
    with Store.open(path) as store:
        (recording,) = queries.recordings(store)
        assert queries.compiles(store, recording.id)[-1].status == "ok"
        assert queries.lost(store, recording.id) == []


def test_everything_is_as_before_afterwards(record: Record) -> None:
    from torch._dynamo import convert_frame
    from torch._logging._internal import trace_log

    before = (convert_frame._compile, list(trace_log.handlers), list(sys.meta_path))
    seen = []
    record(lambda: seen.append(convert_frame._compile))
    assert seen[0] is not before[0]
    assert seen[0].__wrapped__ is before[0]  # type: ignore[attr-defined]
    assert (convert_frame._compile, list(trace_log.handlers), list(sys.meta_path)) == before


def test_what_a_signal_handler_loses_while_a_loss_is_counted_is_counted() -> None:
    """Also one that comes while the lock is held."""

    class Interrupted(str):
        __slots__ = ()

        def __getitem__(self, item: object) -> str:  # as the first of its kind is noted
            failing_open.losses.add("inner", "signal", follows=True)
            return "outer"

    failing_open.losses.reset()
    done = threading.Thread(
        target=failing_open.losses.add, args=("outer", "signal", Interrupted()), daemon=True
    )
    done.start()
    done.join(10)
    assert not done.is_alive()
    assert {row[0] for row in failing_open.losses.snapshot()} == {"outer", "inner"}

"""What is a failure, where it happened, and that it is written down once."""

import contextlib
import gc
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from tests.recorder import programs
from tests.recorder.conftest import Record
from torchreel.recorder import failing_open
from torchreel.recorder.event_log import failures
from torchreel.recorder.event_log.spans import CompileEntry, Mark
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings
from torchreel.store import queries
from torchreel.store.database import Store


def broken(gm: torch.fx.GraphModule, inputs: object) -> object:
    raise ValueError("the backend does not like this graph")


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_a_failing_backend_is_one_failure_with_the_checkpoint_before_it(record: Record) -> None:
    log = record(lambda: torch.compile(sine, backend=broken)(torch.ones(3)))
    (failure,) = queries.failures(log.store)
    assert (failure.stage, failure.failure_class) == ("pre_grad", "exception")
    assert failure.exception_type == "torch._dynamo.exc.BackendCompilerFailed"
    assert "does not like" in failure.message
    assert isinstance(failure.chain, list)
    assert [link["type"] for link in failure.chain][-1] == "ValueError"
    assert failure.signature.exception_types == ("ValueError",)
    assert failure.traceback is not None
    assert b"in broken" in log.store.read_blob(failure.traceback)
    (checkpoint,) = queries.checkpoints(log.store, log.compile)
    assert failure.checkpoint_id == checkpoint.id
    assert log.compile.status == "failed"


@pytest.mark.slow
def test_the_same_failure_of_a_later_compile_is_another_one(record: Record) -> None:
    """Each exception is handled before the next, which often gets the same address."""

    def program() -> None:
        for _ in range(12):
            torch._dynamo.reset()
            with contextlib.suppress(Exception):
                torch.compile(sine, backend=broken)(torch.ones(3))
            gc.collect()

    log = record(program)
    failed = [row.compile_id for row in queries.failures(log.store)]
    assert failed == [row.id for row in log.compiles]
    assert len(failed) == 12


@pytest.mark.parametrize("kind", [ValueError, failures.Stopped])
def test_an_exception_is_known_as_long_as_it_lives(kind: type[BaseException]) -> None:
    """One of a built-in class takes no weak reference: it is known until the next compile."""
    written, error = failures.Written(), kind("a failure")
    assert error not in written
    written.add(error)
    assert error in written
    assert kind("another") not in written
    written.begin()
    assert (error in written) == (kind is failures.Stopped)


def test_an_exception_that_dynamo_suppresses_is_recorded(record: Record) -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        log = record(lambda: torch.compile(sine, backend=broken)(torch.ones(3)))
    assert [row.stage for row in queries.failures(log.store)] == ["pre_grad"]


def test_an_exception_that_the_backend_handles_is_none(record: Record) -> None:
    def careful(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        inner = torch._dynamo.lookup_backend("aot_eager")
        try:
            with torch._functorch.config.patch(joint_custom_pass=lambda *a: 1 / 0):
                return inner(gm, inputs)
        except ZeroDivisionError:
            return gm.forward

    x = torch.ones(3, requires_grad=True)
    log = record(lambda: torch.compile(sine, backend=careful)(x))
    assert ("joint", "", "failed") in log.stages()
    assert queries.failures(log.store) == []
    assert log.compile.status == "ok"


def test_a_failure_belongs_to_the_innermost_stage(record: Record) -> None:
    x = torch.ones(3, requires_grad=True)
    with torch._functorch.config.patch(joint_custom_pass=lambda *a: 1 / 0):
        log = record(lambda: torch.compile(sine, backend="aot_eager")(x))
    (failure,) = queries.failures(log.store)
    assert failure.stage == "joint"
    assert failure.signature.exception_types == ("ZeroDivisionError",)


def test_the_innermost_mark_wins_while_the_exception_is_on_its_way() -> None:
    entry = CompileEntry("0/0", 0)
    cause, error = KeyError("first"), ValueError("wrapped")
    error.__context__ = cause
    outer = Mark(id(error), entry, "pre_grad", "")
    inner = Mark(id(cause), entry, "lowering", "")
    another = Mark(id(entry), entry, "lowering", "")
    assert failures.mark(inner, error, outer) is inner
    assert failures.mark(another, error, outer) is outer
    assert failures.mark(None, error, outer) is outer


def test_control_flow_of_dynamo_is_no_error() -> None:
    from torch._dynamo import exc

    assert failures.is_control_flow(exc.SpeculationRestartAnalysis(restart_reason="again"))
    assert failures.is_control_flow(exc.SkipFrame("not this one"))
    assert not failures.is_control_flow(ValueError("a bug"))


FORBIDDEN = """
import torch
compiled = torch.compile(lambda x: x.sin(), backend="eager", dynamic=False)
compiled(torch.ones(2))
with torch.compiler.set_stance("fail_on_recompile"):
    compiled(torch.ones(3))
"""


@pytest.mark.slow
def test_a_compile_that_is_forbidden_is_one_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    assert programs.run(FORBIDDEN, path) == 1
    with Store.open(path) as store:
        (failure,) = queries.failures(store)
        made, forbidden = queries.compiles(store, 1)
    assert failure.compile_id == forbidden.id
    assert (failure.stage, failure.exception_type) == ("dynamo", "RuntimeError")
    assert "size mismatch at index 0. expected 2, actual 3" in failure.message
    assert (made.status, forbidden.status) == ("ok", "failed")
    assert (forbidden.frame_name, forbidden.frame_line) == (made.frame_name, made.frame_line)


def test_hooks_for_uncaught_exceptions_are_put_back(record: Record) -> None:
    before = threading.excepthook
    seen = []
    record(lambda: seen.append(threading.excepthook))
    assert seen[0] is not before
    assert threading.excepthook is before


def test_the_hook_of_python_itself_stays(record: Record) -> None:
    """A console prints tracebacks elsewhere where there is another (`code.InteractiveConsole`)."""
    before = sys.excepthook
    seen = []
    record(lambda: seen.append(sys.excepthook))
    assert seen == [before]


_INDEX = """
def run():
    compiled = torch.compile(lambda x, at: x.sin()[at] + 1, backend="eager")
    compiled(torch.ones(3), torch.tensor([7]))
"""
SHOWN = (
    _INDEX
    + """
def console():
    try:
        run()
    except IndexError as error:
        sys.last_value = error  # shows it, and goes on
console()
"""
)
UNCAUGHT = (
    _INDEX
    + """
sys.excepthook = lambda *error: None
run()
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "status"), [(SHOWN, 0), (UNCAUGHT, 1)])
def test_what_ends_a_program_is_a_failure_of_its_run(
    program: str, status: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    assert programs.run(program, path) == status
    with Store.open(path) as store:
        assert [failure.stage for failure in queries.failures(store)] == ["run"] * status


def test_what_leaves_the_block_is_what_was_raised(record: Record, tmp_path: object) -> None:
    import torchreel

    with pytest.raises(RuntimeError, match="mine") as caught, torchreel.record(f"{tmp_path}/x.db"):
        raise RuntimeError("mine")
    assert not hasattr(caught.value, "__notes__")


# -- the program's own definitions ----------------------------------------------------------------

BACKEND = """
import torch

# a word of the customer's
LIMITS = {"nodes": 0}


def is_small(gm):
    return len(gm.graph.nodes) <= LIMITS["nodes"]


def small(gm, inputs):
    if not is_small(gm):
        raise ValueError("this graph is too large")
    return gm


unrelated = 3
torch.compile(lambda x: x + 1, backend=small)(torch.ones(3))
"""


def chain_of(store: Path) -> list[dict[str, Any]]:
    with Store.open(store) as opened:
        (failure,) = queries.failures(opened)
    assert isinstance(failure.chain, list)
    return cast("list[dict[str, Any]]", failure.chain)


@pytest.mark.sampled
@pytest.mark.parametrize("level", ["default", "all"])
def test_what_the_compiler_called_is_kept_with_all_that_it_uses(tmp_path: Path, level: str) -> None:
    program, store = tmp_path / "backend.py", tmp_path / "run.db"
    program.write_text(BACKEND)
    settings = Settings(redact=level)
    assert run_recorded([sys.executable, str(program)], str(store), settings=settings) == 1
    outer, inner = chain_of(store)
    assert outer["called"] == inner["called"]
    texts = [part["text"].partition("\n")[0] for part in inner["called"]]
    if level == "all":
        assert texts == []
    else:
        assert texts == ["def small(gm, inputs):", "def is_small(gm):", 'LIMITS = {"nodes": 0}']


@pytest.mark.slow
def test_a_secret_in_another_file_of_the_backend_is_taken_out(tmp_path: Path) -> None:
    """No frame of that file compiles, and none of its functions is in the traceback."""
    tmp_path.joinpath("limits.py").write_text(
        "_TOKEN = (\n    'x1y2z3a4'\n)\n\ndef allowed():\n    return 'of x1y2z3a4', _TOKEN\n"
    )
    program, store = tmp_path / "backend.py", tmp_path / "run.db"
    program.write_text(
        BACKEND.replace("import torch", "import torch\nimport limits").replace(
            "<= LIMITS", "<= len(limits.allowed()) - 2 + LIMITS"
        )
    )
    assert run_recorded([sys.executable, str(program)], str(store), settings=Settings()) == 1
    assert "def allowed():" in str(chain_of(store))
    assert "x1y2z3a4" not in str(chain_of(store))


def test_code_that_was_made_of_text_is_no_function_of_the_program(record: Record) -> None:
    scope: dict[str, Any] = {}
    exec("def made(gm, inputs):\n    raise ValueError('no')", scope)
    log = record(lambda: torch.compile(sine, backend=scope["made"])(torch.ones(3)))
    (failure,) = queries.failures(log.store)
    assert "called" not in cast("list[dict[str, Any]]", failure.chain)[-1]


def test_the_function_that_dynamo_was_tracing_is_kept(record: Record) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        found = x.sum()
        return x + 1 if found else x

    log = record(lambda: torch.compile(branch, fullgraph=True)(torch.ones(3)))
    (failure,) = queries.failures(log.store)
    (link,) = cast("list[dict[str, Any]]", failure.chain)
    (part,) = link["traced"]
    assert part["text"].lstrip().startswith("def branch(")
    assert "called" not in link


@pytest.mark.sampled
@pytest.mark.parametrize(
    "line",
    [
        "from somewhere_else import *",
        "exec('def is_small(gm): return False')",
        "def is_small(gm):" + "\n    # much" * 4_000 + "\n    return False",
    ],
)
def test_of_what_its_text_does_not_show_nothing_is_kept(tmp_path: Path, line: str) -> None:
    tmp_path.joinpath("somewhere_else.py").write_text("def is_small(gm):\n    return False\n")
    program, store = tmp_path / "backend.py", tmp_path / "run.db"
    function = BACKEND[BACKEND.index("def is_small") : BACKEND.index("def small")]
    program.write_text(BACKEND.replace(function, f"{line}\n\n"))
    assert run_recorded([sys.executable, str(program)], str(store), settings=Settings()) == 1
    assert [link["called"] for link in chain_of(store)] == [[], []]


def test_a_hook_that_forbids_all_files_stops_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit hook of the program's may raise anything, in the thread of the event log too."""

    def forbids(*_: object) -> int:
        raise RuntimeError("no file is to be written here")

    monkeypatch.setenv(failing_open.REPORT_VARIABLE, str(tmp_path / "report"))
    monkeypatch.setattr(failing_open, "_late", [])
    monkeypatch.setattr(failing_open.os, "open", forbids)
    failing_open.announce("something is lost")
    assert failing_open._late == ["something is lost"]

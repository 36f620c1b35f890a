"""The recorded program itself, where neither a graph nor a frame shows its failure."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchreel.errors import NotReproduced, UnsupportedError, UntrustedError
from torchreel.minifier.accuracy.wrong_results import find_in_program, with_doubt
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import ANYTHING, SourceCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.oracle.child.program_runner import run
from torchreel.minifier.oracle.protocol import ChildReport, Task, TaskResult
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro import ExportOptions, export, export_case
from torchreel.minifier.repro.failure_summary import FailureSummary
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.scripts.source_form import comparing_forms
from torchreel.minifier.source.recorded_program import (
    _command,
    observed_program,
    read_program,
    recorded_program,
)
from torchreel.replay.accuracy.comparison import differences
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import parse_json
from torchreel.store.failures.signature import Signature, wrong_result_signature
from torchreel.store.records import Recording

TRUSTED = MinifyOptions(trust=True)
ROOT = Path(__file__).parents[3]

# A process that judges a program: what can be done once would be done in that of the tests.
_JUDGED = """\
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.oracle.child.program_runner import run
from torchreel.minifier.oracle.protocol import Task
from torchreel.store.failures.signature import Signature

task = Task(SourceCase({text!r}, whole=True), Signature("exception", "dynamo"), 0.0, 0)
print(run(task, lambda position: None).detail)
"""

# An operator of the program's own, which no bundle of a frame has.
OPERATOR = """\
import collections
import torch

@torch.library.custom_op("mine::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)

def f(x):
    queue = collections.deque([torch.ops.mine.doubled(x), x])
    queue.rotate(1)
    return queue[0] + 1

def main():
    try:
        print(torch.compile(f, fullgraph=True, backend="eager")(torch.ones(3)))
    except ZeroDivisionError:
        print("never")

if __name__ == "__main__":
    main()
"""

# A backend of the program's own: no script of a graph can name it.
BACKEND = """\
import torch

def ours(gm, inputs):
    if any("cos" in str(node.target) for node in gm.graph.nodes):
        raise NotImplementedError("no kernel for cos")
    return gm.forward

torch.compile(lambda x: x.sin().cos().tan(), backend=ours)(torch.ones(3))
"""

# pytorch/pytorch#197860: a method has other code in the second call, on which there is no guard.
SECOND_CALL = """\
import torch

def first(self, x):
    return x * 2.0

def second(self, x):
    return x * 9.0

class Model:
    m = first

model = Model()
x = torch.arange(1.0, 4.0)
compiled = torch.compile(lambda x: model.m(x), backend="eager")
print("before", compiled(x))
Model.m.__code__ = second.__code__
assert torch.equal(compiled(x), model.m(x)), "stale"
"""

# Only the cache of Inductor asks a pass for its digest.
IN_CACHES = """\
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

class Nothing(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        raise ValueError("no uuid")

torch._inductor.config.post_grad_custom_post_pass = Nothing()
torch.compile(lambda x: x + 1)(torch.ones(3))
"""


def recorded(folder: Path, text: str, *arguments: str) -> Path:
    """A store of what a program did."""
    (folder / "program.py").write_text(text)
    time.sleep(0.02)  # the recording begins after the file was written
    words = ["record", "-o", "run.db", "--", sys.executable, "program.py", *arguments]
    subprocess.run(
        [sys.executable, "-m", "torchreel.cli", *words],
        cwd=folder, check=False, capture_output=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return folder / "run.db"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the program with an operator of its own."""
    return recorded(tmp_path_factory.mktemp("operator"), OPERATOR)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the program whose second call is wrong."""
    return recorded(tmp_path_factory.mktemp("stale"), SECOND_CALL)


def test_a_program_is_taken_without_what_keeps_its_failure_in(failed: Path) -> None:
    with Store.open(failed) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        first, second = recorded_program(store, compile, TRUSTED)
    assert first.text.splitlines()[-1] == (
        "print(torch.compile(f, fullgraph=True, backend='eager')(torch.ones(3)))"
    )
    assert "except ZeroDivisionError" in second.text
    for case in (first, second):
        assert (case.whole, case.exports) == (True, False)
        assert SourceCase.from_json(parse_json(case.to_bytes())) == case


def test_a_body_that_only_a_function_may_have_stays_in_it(tmp_path: Path) -> None:
    text = OPERATOR.replace(
        "def main():\n",
        "def main():\n    n = 0\n    def count():\n        nonlocal n\n    count()\n",
    )
    with Store.open(recorded(tmp_path, text)) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        texts = [case.text for case in recorded_program(store, compile, TRUSTED)]
    assert all("def main():" in text for text in texts)


def test_what_a_program_shows_and_checks_has_names(stale: Path) -> None:
    with Store.open(stale) as store:
        compile = queries.compiles(store, 1)[0]
        (case,) = observed_program(store, compile, TRUSTED)  # it has no `try`
    assert case.text.splitlines()[-3:] == [
        "seen1 = (compiled(x),)",
        "Model.m.__code__ = second.__code__",
        "seen2 = torch.equal(compiled(x), model.m(x))",
    ]
    assert case.observes == ANYTHING


def test_what_eager_mode_raises_may_be_the_right_result(failed: Path) -> None:
    with Store.open(failed) as store:
        compile = queries.compiles(store, 1)[0]
        first, second = observed_program(store, compile, TRUSTED)
    assert ("except" in first.text, "except" in second.text) == (False, True)


@pytest.mark.slow
def test_a_program_that_was_changed_is_another(tmp_path: Path) -> None:
    path = recorded(
        tmp_path, "import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))"
    )
    with Store.open(path) as store:
        compile = queries.compiles(store, 1)[0]
        assert recorded_program(store, compile, TRUSTED)
        (tmp_path / "program.py").write_text("import torch")
        with pytest.raises(UnsupportedError, match="has changed since it was recorded"):
            recorded_program(store, compile, TRUSTED)
        (tmp_path / "program.py").unlink()
        with pytest.raises(UnsupportedError, match="can't be read"):
            recorded_program(store, compile, TRUSTED)


_WITH_A_MODULE = """
from __future__ import annotations
import argparse
import torch
from layers import scaled
parser = argparse.ArgumentParser()
parser.add_argument("--by", type=int)
by = parser.parse_args().by
torch.compile(lambda x: scaled(x, by), backend="eager")(torch.ones(2))
"""


@pytest.mark.slow
def test_a_program_brings_its_arguments_and_its_modules(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("def scaled(x, by):\n    return x * by\n")
    path = recorded(tmp_path, _WITH_A_MODULE, "--by", "3")
    with Store.open(path) as store:
        compile = queries.compiles(store, 1)[0]
        case = recorded_program(store, compile, TRUSTED)[0]
        (tmp_path / "layers.py").write_text("def scaled(x, by):\n    return x\n")
        with pytest.raises(UnsupportedError, match=r"layers\.py has changed since"):
            recorded_program(store, compile, TRUSTED)
    assert case.text.splitlines()[:3] == [
        "from __future__ import annotations",
        "import sys",
        "sys.argv = ['program.py', '--by', '3']",
    ]
    assert "import layers" not in case.text
    assert "from layers" not in case.text
    script = tmp_path / "elsewhere" / "one_file.py"
    script.parent.mkdir()
    script.write_text(f"{case.text}print('by', by)\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ran.stdout == "by 3\n"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("python -u train.py --by 3", "train.py --by 3"),
        ("/usr/bin/python3 -W ignore -X dev train.py", "train.py"),
        ("python -OWerror::UserWarning -Xfrozen_modules=off train.py -W x", "train.py -W x"),
        ("train.py", "train.py"),
        ("python -m train", ""),
        ("python -W", ""),
        ("python -x train.py", ""),
    ],
)
def test_the_file_of_a_command_is_found_behind_its_options(command: str, file: str) -> None:
    recording = Recording(
        1,
        "r",
        "program",
        None,
        None,
        1,
        None,
        command.split(),
        "/src",
        0,
        None,
        None,
        None,
        "done",
    )
    if not file:
        with pytest.raises(UnsupportedError, match="not of a file of Python"):
            _command(recording)
        return
    path, arguments = _command(recording)
    assert f"{path} {' '.join(arguments)}".strip() == f"/src/{file}"


@pytest.mark.slow
def test_an_argument_that_was_taken_out_is_not_guessed(tmp_path: Path) -> None:
    text = "import torch\ntorch.compile(torch.sin, backend='eager')(torch.ones(2))"
    path = recorded(tmp_path, text, "--api-token", "hunter2222")
    with Store.open(path) as store, pytest.raises(UnsupportedError, match="was redacted"):
        recorded_program(store, queries.compiles(store, 1)[0], TRUSTED)


@pytest.mark.slow
def test_a_failure_that_needs_caches_is_reduced_with_them(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path, IN_CACHES), write=True) as store:
        found = minify(store, options=replace(TRUSTED, explain=False))
        assert isinstance(found.case, SourceCase)
        assert (found.case.caches, found.case.call_nodes) == (True, 9)
        assert SourceCase.from_json(parse_json(found.case.to_bytes())) == found.case
        (compile,) = queries.compiles(store, 1)
        result = export(store, compile, ExportOptions(tmp_path / "out", trust=True))
        steps = _Messages()
        again = minify(store, options=replace(TRUSTED, explain=False), listener=steps)
    assert (again.case, again.oracle_runs) == (found.case, 0)
    assert not any("starting with the program itself" in text for text in steps.texts)
    assert result.check.holds
    script = (tmp_path / "out" / "repro.py").read_text()
    assert "os.environ['TORCHINDUCTOR_CACHE_DIR'] = tempfile.mkdtemp()" in script


_JACOBIAN = """\
import torch

def f(x):
    product = torch.mm(torch.prod(x) + x, torch.sum(x) + x)
    return torch.sum(torch.mm(product, torch.sum(x) + x))

torch.compile(torch.func.jacfwd(f))(torch.ones(3, 3, dtype=torch.float16))
"""


@pytest.mark.slow
def test_a_call_of_torch_func_is_reduced_in_the_program(tmp_path: Path) -> None:
    """Its graph has four times the calls, of torch's own functions (after pytorch#194706)."""
    with Store.open(recorded(tmp_path, _JACOBIAN), write=True) as store:
        found = minify(store, options=replace(TRUSTED, explain=False, limits=Budget(runs=4)))
    assert isinstance(found.case, SourceCase)
    assert found.case.whole
    assert "torch.func.jacfwd(" in found.case.text
    assert found.before_call_nodes == 5


_HESSIAN = """\
import torch

def f(t):
    return 1.0 / torch.trace(t)

print(torch.compile(torch.func.hessian(f))(torch.tensor([[0.1, 0.2]])))
"""


@pytest.mark.slow
def test_a_wrong_result_of_torch_func_is_reduced_in_the_program(tmp_path: Path) -> None:
    """After pytorch#190855."""
    options = replace(TRUSTED, explain=False, limits=Budget(runs=8))
    with Store.open(recorded(tmp_path, _HESSIAN), write=True) as store:
        found = minify(store, accuracy=True, options=options)
    assert isinstance(found.case, SourceCase)
    assert "torch.func.hessian(" in found.case.text


_DECOMPOSITION = """\
import torch

def branch(x):
    torch.tensor(0)
    return x.clone()

class Module(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.any(), branch, branch, (x,))

unused = torch.ones(3).sum()
exported = torch.export.export(Module(), (torch.empty(()),))
exported.run_decompositions()
"""


@pytest.mark.slow
def test_a_failing_decomposition_is_reduced_in_the_program(tmp_path: Path) -> None:
    """Eager mode would raise as well: it makes no difference to torch.export (pytorch#180354)."""
    with Store.open(recorded(tmp_path, _DECOMPOSITION), write=True) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        assert queries.is_decomposition(store, compile)
        with pytest.raises(UnsupportedError, match="with --trust, the program that exports it is"):
            minify(store)
        options = replace(TRUSTED, explain=False, limits=Budget(runs=12))
        found = minify(store, options=options)
    assert isinstance(found.case, SourceCase)
    assert "run_decompositions()" in found.case.text
    assert "unused" not in found.case.text


class _Messages:
    """Keeps what a reduction says."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_step(self, event: ProgressEvent) -> None:
        """See `Listener`."""
        self.texts.append(event.message)


@pytest.mark.slow
def test_caches_are_empty_when_a_run_begins(tmp_path: Path) -> None:
    """Nor does a setting of the worker's own keep them off."""
    text = IN_CACHES.replace('raise ValueError("no uuid")', 'return "one"') + (
        "from torch._dynamo.utils import counters\n"
        'raise ValueError(f\'{counters["inductor"]["fxgraph_cache_miss"]} of 1\')\n'
    )
    wanted = Signature("exception", "run", "", ("ValueError",), (), "N of N")
    case = SourceCase(text, whole=True, caches=True, eager=False)
    with WorkerOracle(wanted, trust=True) as oracle:
        details = [oracle.judge(replace(case, repeats=n)).detail for n in (1, 2)]
    assert details == ["ValueError: 1 of 1"] * 2


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ChildReport]:
    """What came of a whole program in this process, which keeps its own `__main__`."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def judge(text: str, observes: str, wanted: Signature | None = None) -> ChildReport:
        torch._dynamo.reset()
        case = SourceCase(text, observes=observes, whole=True)
        wanted = wrong_result_signature("values", stage="dynamo")
        return run(Task(case, wanted, 0.0, 0), lambda position: None)

    return judge


def test_a_wrong_second_call_is_a_difference(judged: Callable[[str, str], ChildReport]) -> None:
    text = SECOND_CALL.replace(
        "assert torch.equal(compiled(x), model.m(x)), ", "seen = compiled(x), "
    )
    found = judged(text, "seen[0]")
    assert (found.verdict, found.stage) == ("same", "dynamo")
    assert judged(text, "seen[1]").verdict == "none"
    right = text.replace("Model.m.__code__ = second.__code__", "")
    assert judged(right, "seen[0]").verdict == "none"


def test_a_whole_program_fails_only_where_it_compiles(
    judged: Callable[[str, str], ChildReport],
) -> None:
    found = judged(SECOND_CALL, "")
    assert (found.verdict, found.detail) == ("other", "AssertionError: stale")
    found = judged(SECOND_CALL + "raise ValueError\n", "")
    assert (found.verdict, found.stage) == ("invalid", "eager")
    assert judged("import sys\nsys.exit(3)\n", "").verdict == "none"


@pytest.mark.parametrize(
    "once",
    ["torch.set_num_interop_threads(1)", "multiprocessing.set_start_method('spawn')"],
)
def test_a_program_may_do_what_can_be_done_once(once: str) -> None:
    """It runs twice: in eager mode and compiled."""
    text = (
        "import multiprocessing, torch\n"
        f"{once}\n"
        "def f(x):\n"
        "    torch._dynamo.graph_break()\n"
        "    return x\n"
        "torch.compile(f, fullgraph=True, backend='eager')(torch.ones(2))\n"
    )
    worker = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + _JUDGED.format(text=text)
    ended = subprocess.run(
        [sys.executable, "-c", worker], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Unsupported: Call to `torch._dynamo.graph_break()`" in ended.stdout, ended.stderr


def test_eager_mode_that_dies_rejects_a_program(judged: Callable[[str, str], ChildReport]) -> None:
    kill = "import os, signal\nos.kill(os.getpid(), signal.{})\n"
    died = judged(kill.format("SIGTRAP"), "")
    assert (died.verdict, died.stage, died.detail) == (
        "invalid",
        "eager",
        "eager mode died of SIGTRAP",
    )
    killed = judged(kill.format("SIGKILL"), "")
    assert (killed.verdict, killed.killed) == ("unjudged", True)
    ended = judged("import os\nos._exit(3)\n", "")
    assert (ended.verdict, ended.detail) == ("unjudged", "eager mode exited 3")


class Here:
    """Judges cases in this process."""

    def __init__(self) -> None:
        self.cases: list[SourceCase] = []

    def judge(self, case: AnyCase) -> OracleReport:
        """See `Oracle`."""
        assert isinstance(case, SourceCase)
        self.cases.append(case)
        torch._dynamo.reset()
        task = Task(case, wrong_result_signature("values", stage="dynamo"), 0.0, 0)
        return TaskResult(run(task, lambda position: None), 0.0, 0).report()


@pytest.mark.slow
def test_a_program_may_raise_for_what_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing can be compared, but that it raises only where it compiles is the case."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    text = SECOND_CALL.partition("assert")[0] + (
        "def check():\n"
        "    if not torch.equal(compiled(x), model.m(x)):\n"
        "        raise LookupError('stale')\n"
        "check()\n"
    )
    with Store.open(recorded(tmp_path, text), write=True) as store:
        case, failure = find_in_program(store, None, TRUSTED, Here())
    assert (case.whole, case.observes) == (True, "")
    assert failure.signature.exception_types == ("LookupError",)


def test_what_may_be_rounding_is_said() -> None:
    """A program is not computed in float64, as a graph is."""
    found = differences([torch.ones(2)], [torch.zeros(2)])
    assert "may be rounding" in with_doubt(str(found[0].detail))
    assert with_doubt("True in eager mode, False compiled").endswith("compiled")


def test_names_of_a_program_are_not_those_of_its_script() -> None:
    """What is compared would be what the second run gave the program's own variables."""
    text = "import torch\ndef run():\n    return 1\nexpected = run()\nactual = 3\n"
    case = SourceCase(text, whole=True, observes="expected")
    torchs, own = list(comparing_forms(case, []))[-2:]
    assert "def run_2():" in own.text
    assert "expected_2 = run_2()" in own.text
    assert "assert actual_2 == expected_2" in own.text
    assert "assert_close(actual_2, expected_2, equal_nan=True)" in torchs.text
    exec(own.text, {})


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """To open a pipe would wait for ever, and /dev/zero has no end."""
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    for name in ("pipe.py", "zero.py", "\0.py"):
        with pytest.raises((OSError, ValueError)):
            read_program(tmp_path / name)


DRAWS = """\
import random
import torch

layer = torch.nn.Linear(2, 2)
value = layer(torch.ones(2)).sum() + {more}
torch.compile(torch.sin, backend="eager")(value)
"""


def test_both_runs_of_a_script_draw_the_same_weights() -> None:
    """No word of it says that a new layer is random."""
    case = SourceCase(DRAWS.format(more=0), whole=True, observes="value")
    exec(next(iter(comparing_forms(case, []))).text, {})


@pytest.mark.slow
def test_a_script_that_fails_by_itself_is_not_verified(tmp_path: Path) -> None:
    """Whatever torch.compile does, its two runs part, for Python's random numbers have no seed."""
    case = SourceCase(DRAWS.format(more="random.random()"), whole=True, observes="value")
    story = FailureSummary(wrong_result_signature("values", stage="dynamo"))
    options = ExportOptions(tmp_path / "repro", trust=True)
    exported = export_case(case, story, options)
    assert not exported.check.holds
    assert "the same without torch.compile" in exported.check.detail


@pytest.mark.slow
def test_a_backend_of_the_program_is_reduced_with_it(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path, BACKEND), write=True) as store:
        with pytest.raises(UntrustedError, match="is code of the program: add --trust"):
            minify(store)
        reduction = minify(store, options=replace(TRUSTED, limits=Budget(runs=20)))
        assert isinstance(reduction.case, SourceCase)
        compile = queries.latest_failing(store)
        assert compile is not None
        exported = export(store, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.holds
    assert "def ours(" in exported.script.text


@pytest.mark.slow
def test_an_operator_of_the_program_is_reduced_with_it(failed: Path, tmp_path: Path) -> None:
    with Store.open(failed, write=True) as store:
        with pytest.raises(UntrustedError, match="--trust"):
            minify(store)
        reduction = minify(store, options=replace(TRUSTED, limits=Budget(runs=20)))
        assert isinstance(reduction.case, SourceCase)
        assert reduction.case.whole
        assert reduction.after_call_nodes < reduction.before_call_nodes
        compile = queries.latest_failing(store)
        assert compile is not None
        exported = export(store, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.holds


@pytest.mark.slow
def test_a_wrong_second_call_is_reduced(stale: Path, tmp_path: Path) -> None:
    with Store.open(stale, write=True) as store:
        with pytest.raises(NotReproduced, match="add --trust"):
            minify(store, accuracy=True)
        options = replace(TRUSTED, limits=Budget(runs=20))
        reduction = minify(store, accuracy=True, options=options)
        assert isinstance(reduction.case, SourceCase)
        assert reduction.case.whole
        compile = queries.latest_failing(store)
        assert compile is not None
        exported = export(store, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.exact
    assert ".__code__ = " in exported.script.text

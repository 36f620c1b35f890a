"""Reductions without a failure: what a predicate or a user's command finds interesting."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tests.minifier.planted  # registers the backends here, as it does in the worker
from tests.minifier.hand_made import functions_of
from tests.minifier.real import PLANTED, case_from, chain_of, shared_worker
from tests.minifier.recorded import record
from torchreel.errors import TrivialResult, UsageError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.initial_cases.interestingness import options_to_repeat
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions, RunLimits
from torchreel.minifier.oracle.command_oracle import CommandOracle
from torchreel.minifier.oracle.predicates import parse_predicate
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro.check import check
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.scripts.script import candidate_script, compile_form
from torchreel.minifier.search.search import Search
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import predicate_signature, script_signature

SCRIPT_OF = partial(candidate_script, trust=False)

assert tests.minifier.planted, "imported for its side effect"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> WorkerOracle:
    """The warm worker, with fixed limits."""
    oracle = shared_worker()
    monkeypatch.setattr(oracle, "_bounds", RunLimits(60.0, 8 << 30))
    return oracle


def judged(worker: WorkerOracle, case: Case, text: str) -> OracleReport:
    """Whether a predicate holds."""
    worker.look_for(predicate_signature(str(parse_predicate(text))))
    return worker.judge(case)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('code ~ "\\bsin\\(" and kernels == 1 and code_lines > 20', True),
        ('code ~ "asinh"', False),
        ("python_calls > 5K and memory >= 0 and cpu_seconds > 0.01", True),
        ("guards > 0", False),
    ],
)
def test_what_inductor_does_is_measured(worker: WorkerOracle, text: str, holds: bool) -> None:
    """Without a C++ compiler, where that has nothing to say."""
    case = case_from(chain_of(["sin"]), torch.ones(3))
    case = case if "cpu_seconds" not in text else replace(case, backend="aot_eager")
    assert judged(worker, case, text).verdict == ("same" if holds else "none")


def test_guards_and_recompiles(worker: WorkerOracle) -> None:
    """Those that the graph alone makes."""
    case = case_from(lambda x, y: x.view(3, -1) + y, torch.ones(6), torch.ones(2), dynamic=True)
    case = replace(case, backend="aot_eager")
    assert judged(worker, case, "guards > 0").verdict == "same"
    static = case_from(torch.sin, torch.ones(6))
    static = replace(static, backend="aot_eager")
    report = judged(worker, static, "recompiles == 1")
    assert report.verdict == "same", report
    assert report.detail == "recompiles = 1"


def test_warnings_are_counted_and_read(worker: WorkerOracle) -> None:
    """Python's and those of torch's loggers."""
    case = case_from(chain_of(["sin"]), torch.ones(3), backend="planted_warnings")
    assert judged(worker, case, "warnings == 2").verdict == "same"
    assert judged(worker, case, 'warning ~ "^beware" and warning ~ "logged: sin"').verdict == "same"


@pytest.mark.slow
def test_a_limit_that_is_reached_decides_what_it_can(
    worker: WorkerOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compile that was ended after two seconds took more than one."""
    monkeypatch.setattr(worker, "_bounds", RunLimits(2.0))
    case = case_from(chain_of(["cos"]), torch.ones(3), backend="planted_ends")
    assert judged(worker, case, "compile_seconds > 0.5").verdict == "same"
    assert judged(worker, case, "compile_seconds > 100").verdict == "unjudged"
    assert judged(worker, case, "compile_seconds < 0.1").verdict == "none"


def test_an_error_is_another_failure(worker: WorkerOracle) -> None:
    """It is no measurement."""
    case = case_from(chain_of(["tan"]), torch.ones(3), backend="planted_two")
    assert judged(worker, case, "compile_seconds >= 0").verdict == "other"


@pytest.mark.slow
def test_a_compile_is_reduced_by_what_its_code_says(worker: WorkerOracle) -> None:
    """To the one operator that is in the text."""
    case = case_from(chain_of(["relu", "sin", "neg", "cos", "exp"]), torch.ones(4, 8))
    wanted = predicate_signature(str(parse_predicate('code ~ "\\bcos\\("')))
    worker.look_for(wanted)
    assert functions_of(Search(worker, wanted).run(case).case) == ["cos"]


def test_a_predicate_that_always_holds(worker: WorkerOracle) -> None:
    """Is none of the graph's."""
    case = replace(case_from(chain_of(["sin", "cos"]), torch.ones(4)), backend="aot_eager")
    wanted = predicate_signature("guards < 40")
    worker.look_for(wanted)
    with pytest.raises(TrivialResult):
        Search(worker, wanted).run(case)


def test_the_question_is_in_the_store(tmp_path: Path, worker: WorkerOracle) -> None:
    """And what was reduced for it once is found again, without asking anew."""
    functions = ["relu", "sin", "exp", "cos", "neg"]
    path = record(
        tmp_path / "run.db", chain_of(functions), torch.ones(4, 8), backend="planted_warnings"
    )
    options = MinifyOptions(imports=(PLANTED,), predicate='warning ~ "logged:.*exp"')
    with Store.open(path, write=True) as store:
        first = minify(store, options=options, oracle=worker)
        again = minify(store, options=MinifyOptions(imports=(PLANTED,)), oracle=worker)
        (failure,) = queries.failures(store)
    assert functions_of(first.case) == ["exp"]
    assert (again.oracle_runs, again.case.digest) == (0, first.case.digest)
    assert (failure.failure_class, failure.message) == ("predicate", 'warning ~ "logged:.*exp"')


def command(folder: Path, text: str) -> tuple[str, ...]:
    """A command that runs a shell script of this text."""
    path = folder / "check.sh"
    path.write_text(text)
    return ("sh", str(path))


def test_any_command_is_an_interestingness_test(tmp_path: Path, worker: WorkerOracle) -> None:
    """It gets a script that runs."""
    functions = ["relu", "sin", "exp", "cos", "neg"]
    path = record(tmp_path / "run.db", chain_of(functions), torch.ones(4, 8), backend="eager")
    judge = command(tmp_path, 'grep -q "torch.sin(" "$1" && grep -q "torch.cos(" "$1"\n')
    with Store.open(path, write=True) as store:
        found = minify(store, options=MinifyOptions(command=judge), oracle=worker)
        with pytest.raises(UsageError, match="no command is taken from a store"):
            minify(store, oracle=worker)
    assert functions_of(found.case) == ["sin", "cos"]
    text = compile_form(found.case, found.signature, []).text
    compile(text, "repro.py", "exec")
    assert check(text, found.signature, (), judge).holds
    assert not check(text, found.signature).holds, "nobody named a command"


def test_what_a_command_may_say(tmp_path: Path, worker: WorkerOracle) -> None:
    """0 interesting, 125 cannot judge, anything else is not; what eager rejects is not asked."""
    case = case_from(chain_of(["sin"]), torch.ones(3), backend="eager")
    wanted = script_signature("check")
    worker.look_for(wanted)
    expected = {
        "exit 0": "same",
        "exit 1": "none",
        "exit 77": "none",
        "exit 125": "unjudged",
        "kill -9 $$": "unjudged",
        "sh -c 'kill -9 $$'; exit $?": "unjudged",
        "sh -c 'kill -15 $$'; exit $?": "unjudged",
        "sh -c 'kill -11 $$'; exit $?": "none",  # it may be what the command looks for
        "sleep 60": "unjudged",
    }
    for text, verdict in expected.items():
        judge = CommandOracle(worker, command(tmp_path, text), wanted, SCRIPT_OF, RunLimits(1.0))
        report = judge.judge(case)
        assert report.verdict == verdict, text
        assert report.lasting == ("kill -9" not in text and "kill -15" not in text)
    x = case.checkpoint.inputs[0]
    broken = replace(case, checkpoint=replace(case.checkpoint, inputs=(x, x)))
    judge = CommandOracle(worker, command(tmp_path, "exit 0"), wanted, SCRIPT_OF)
    assert judge.judge(broken).verdict == "invalid"
    for words in (("no-such-command-anywhere",), (sys.executable, "-c", "exit(127)")):
        with pytest.raises(UsageError, match="can't be run"):
            CommandOracle(worker, words, wanted, SCRIPT_OF).judge(case)


def test_both_ways_of_asking_are_too_many(tmp_path: Path, worker: WorkerOracle) -> None:
    """Only one of them can be the judge."""
    with (
        Store.open(tmp_path / "run.db", write=True, create=True) as store,
        pytest.raises(UsageError, match="only one"),
    ):
        minify(
            store, options=MinifyOptions(predicate="guards > 1", command=("true",)), oracle=worker
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "compile_seconds > 0 and cpu_seconds > 0 and python_calls > 1000 and memory >= 0 "
        'and guards == 0 and warnings == 0 and kernels == 0 and code_lines == 0 and code !~ "x"',
        "recompiles == 1",
    ],
)
def test_a_script_measures_the_same(text: str) -> None:
    """In a fresh process, with torch alone."""
    case = replace(case_from(chain_of(["sin"]), torch.ones(3)), backend="aot_eager", imports=())
    wanted = predicate_signature(str(parse_predicate(text)))
    script = compile_form(case, wanted, []).text
    assert check(script, wanted).holds, script
    unlike = predicate_signature(f"not ({wanted.message})")
    assert not check(compile_form(case, unlike, []).text, unlike).holds


@pytest.mark.parametrize(
    ("regex", "taken"),
    [
        ("logged:.*exp", True), (r"\\bsin\\(.*\\+", True), ("(a|b)c", True), ("(a+)+$", False),
        (".*.*.*x", False), ("(a)?b", False), (r"(a)\\1", False),
    ],
)  # fmt: skip
def test_a_regular_expression_of_a_store_is_quick(regex: str, taken: bool) -> None:
    signature = predicate_signature(f'code ~ "{regex}" and guards > 1')
    failure: Any = SimpleNamespace(failure_class="predicate", signature=signature)
    if taken:
        assert options_to_repeat(failure, MinifyOptions()).predicate == signature.message
    else:
        with pytest.raises(UsageError, match="may take for ever"):
            options_to_repeat(failure, MinifyOptions())

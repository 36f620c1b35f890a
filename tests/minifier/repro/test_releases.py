"""What one run of a script says about a release: nothing is a pass or a failure that is neither."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from torchreel.minifier.repro.check import CheckResult, check
from torchreel.minifier.repro.releases import releases_to_try, run_of
from torchreel.releases.results import State
from torchreel.store.failures.signature import Signature, crash_signature

ERROR = Signature("exception", "lowering", "inference", ("KeyError",), (), "'weight'")
HERE = version("torch").partition("+")[0]


@pytest.mark.parametrize(
    ("script", "state", "detail"),
    [
        ("raise KeyError('weight')", "same", "KeyError: 'weight'"),
        ("pass", "passes", "it ended without an error"),
        (
            "import torch\ntorch.compile(torch.sin, backend='none')(torch.ones(2))",
            "other", "InvalidBackend",
        ),
        (
            "import torch\ntorch.testing.assert_close(torch.ones(2), torch.zeros(2))",
            "other", "AssertionError",
        ),
        ("import os; os.kill(os.getpid(), 11)", "other", "it died by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "unjudged", "it died by SIGKILL, as a rule for"),
        ("raise SystemExit(3)", "unjudged", "it exited with status 3"),
        (
            "import torch\ntorch._inductor.config.no_such_entry = 1",
            "unjudged", "it fails before anything is compiled: AttributeError",
        ),
        ("import torch\ntorch.no_such_thing()", "unjudged", "it fails before anything is compiled"),
        ("from torch import nothing", "unjudged", "it fails before anything is compiled"),
        ("open('/etc/torchreel', 'w')", "unjudged", "the sandbox denied"),
    ],
)  # fmt: skip
@pytest.mark.sampled
def test_what_a_run_says(script: str, state: State, detail: str) -> None:
    run = run_of(check(script, ERROR))
    assert (run.state, run.detail[: len(detail)]) == (state, detail)


def test_a_run_whose_time_was_up_says_nothing() -> None:
    result = CheckResult(False, False, None, -9, "", "it had not ended after 900 s", timed_out=True)
    assert run_of(result).state == "unjudged"


def test_a_crash_is_the_same_by_its_signal() -> None:
    script, wanted = "import os; os.kill(os.getpid(), 11)", crash_signature("run", "", "SIGSEGV")
    assert run_of(check(script, wanted)).state == "same"
    assert run_of(check("pass", wanted)).state == "passes"


def test_an_environment_that_is_named_stands_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[str] = []

    def refuse(versions: object) -> bool:
        asked.append(str(versions))
        return False

    found = releases_to_try(["2.12.0", HERE, "2.99"], [sys.executable], refuse, print)
    assert [one.torch.partition("+")[0] for one in found] == ["2.12.0", HERE, "2.99"]
    assert [one.interpreter is not None for one in found] == [False, True, False]
    assert asked == ["['2.12.0', '2.99']"]
    alone = releases_to_try([HERE], [], refuse, print)
    assert [one.interpreter for one in alone if one.interpreter and one.interpreter.path] == []

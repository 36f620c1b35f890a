"""A repro is believed only when it shows the error by itself, in an environment of torch alone."""

import importlib
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from torchreel.minifier.repro.check import Interpreter, check
from torchreel.releases.packages import foreign_packages, packages
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    hang_signature,
    memory_signature,
    wrong_result_signature,
)

ERROR = Signature("exception", "lowering", "inference", ("KeyError",), (), "'weight'")


def test_the_same_error_holds() -> None:
    found = check("raise KeyError('weight')", ERROR)
    assert (found.holds, found.exact, found.exit_status) == (True, True, 1)
    assert "KeyError" in found.output


def test_another_innermost_frame_is_the_same_error_but_not_exactly() -> None:
    wanted = Signature("exception", "lowering", "", ("KeyError",), ("torch.x:f",), "'weight'")
    found = check("raise KeyError('weight')", wanted)
    assert (found.holds, found.exact) == (True, False)


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("pass", "it ended without an error"),
        ("raise KeyError('bias')", "KeyError: 'bias'"),
        ("raise SystemExit(3)", "it exited with status 3"),
        ("import os; os.kill(os.getpid(), 11)", "it died by SIGSEGV"),
        ("def f(:", "SyntaxError: invalid syntax"),
    ],
)
def test_anything_else_does_not(script: str, detail: str) -> None:
    found = check(script, ERROR)
    assert not found.holds
    assert found.detail.startswith(detail)


@pytest.mark.slow
def test_an_error_that_dynamo_hands_on_is_the_one_that_it_raised() -> None:
    """Its implicit context looks explicit by then: it is no part of what was recorded."""
    script = """
import torch

def f(x):
    return x if x.sum().item() > 1 else x + 1

torch.compile(f, fullgraph=True, backend="eager")(torch.ones(2))
"""
    whole = check(script, Signature("exception", "dynamo")).observed
    assert whole is not None
    assert whole.exception_types == ("UserError", "GuardOnDataDependentSymNode")
    recorded = replace(whole, exception_types=("UserError",), frames=())
    assert check(script, recorded).holds
    assert not check(script, replace(recorded, exception_types=("TypeError",))).holds


@pytest.mark.parametrize("module", ["torchreel", "sqlalchemy", "rich", "hypothesis"])
def test_only_torch_and_what_it_needs_can_be_imported(module: str) -> None:
    found = check(f"import sympy, jinja2\nimport {module}", ERROR)
    assert found.detail == f"ModuleNotFoundError: No module named '{module}'"


def test_what_a_named_module_needs_can_be_imported_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once and later on; another package still can't, and neither can what nobody named."""
    (tmp_path / "mine.py").write_text(
        "import hypothesis\n\ndef later():\n    import hypothesis.strategies\n"
    )
    monkeypatch.chdir(tmp_path)
    found = check("import mine\nmine.later()\nraise KeyError('weight')", ERROR, ("mine",))
    assert found.exact, found.detail
    found = check("import typer", ERROR, ("mine",))
    assert found.detail == "ModuleNotFoundError: No module named 'typer'"
    assert not check("import mine", ERROR).holds


def test_what_setuptools_brings_along_is_not_hidden() -> None:
    importlib.import_module("setuptools")  # as Inductor does, also in the process of the repro
    assert any(path.endswith("_vendor") for path in sys.path)
    assert "jaraco" not in packages()
    assert "hypothesis" in packages()


def test_it_runs_in_an_empty_directory_as_a_main_program() -> None:
    script = "import os, sys\nassert os.listdir() == ['repro.py'], os.listdir()\n"
    script += "assert __name__ == '__main__' and sys.argv == [__file__]\nraise KeyError('weight')"
    assert check(script, ERROR).holds


def test_a_crash_holds_by_its_signal() -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert check(crash, crash_signature("run", "", "SIGSEGV")).exact
    assert check(crash, crash_signature("run", "", None)).holds
    assert not check(crash, crash_signature("run", "", "SIGABRT")).holds


def test_a_hang_holds_when_the_script_says_that_it_hangs() -> None:
    script = (
        "import faulthandler, time, torch, torch._dynamo\n"
        "faulthandler.dump_traceback_later(3, exit=True)\n"
        "torch.compile(torch.sin, backend=lambda *given: time.sleep(99))(torch.ones(2))\n"
    )
    assert check(script, hang_signature("lowering")).holds
    assert not check("pass", hang_signature("lowering")).holds


@pytest.mark.slow
def test_a_wrong_result_is_what_assert_close_says() -> None:
    script = "import torch\ntorch.testing.assert_close(torch.ones(2), torch.zeros(2))"
    assert check(script, wrong_result_signature("values")).holds
    assert not check(script, wrong_result_signature("dtype")).holds
    assert not check("raise AssertionError", wrong_result_signature("values")).holds


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("raise KeyError('weight')", "KeyError: 'weight'"),
        ("import torch\nimport rich", "ModuleNotFoundError: No module named 'rich'"),
        ("open('/etc/torchreel', 'w')", "the sandbox denied"),
    ],
)
def test_another_interpreter_is_as_confined(script: str, detail: str) -> None:
    other = Interpreter(sys.executable, version("torch"), foreign_packages())
    found = check(script, ERROR, interpreter=other)
    assert found.detail.startswith(detail)
    assert found.holds == ("weight" in script)


def test_in_eager_mode_nothing_is_compiled() -> None:
    script = "import torch\ntorch.compile(print, fullgraph=True)('eager')\n"
    script += "torch.compile(backend='inductor')(print)('again')"
    found = check(script, ERROR, eager=True)
    assert found.output == "eager\nagain\n"


def test_an_exception_that_is_no_text_is_described() -> None:
    found = check("raise KeyError('\\udc80weight')", ERROR)
    assert found.chain[0].type_name == "KeyError"


def test_a_word_in_what_a_script_prints_is_no_lack_of_memory() -> None:
    said = "print('this is no MemoryError')"
    assert not check(said, memory_signature("lowering", "inference"), ()).holds


def test_a_script_that_is_slow_outside_of_torch_does_not_hang() -> None:
    slow = (
        "import faulthandler, time\nfaulthandler.dump_traceback_later(1, exit=True)\ntime.sleep(9)"
    )
    assert not check(slow, hang_signature("lowering", "inference"), ()).holds


def test_an_assertion_without_a_text_has_to_be_in_torch() -> None:
    frames = ("torch._inductor.scheduler:Scheduler.fuse_nodes_once",)
    wanted = Signature("exception", "lowering", "inference", ("AssertionError",), frames, "")
    assert not check("def f(x):\n    assert x > 1\nf(0)", wanted, ()).holds


def test_a_variable_of_this_process_does_not_make_a_script_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    script = "import os\nif os.environ.get('TORCHINDUCTOR_FREEZING'):\n    raise KeyError('a')"
    wanted = Signature("exception", "lowering", "inference", ("KeyError",), (), "a")
    assert not check(script, wanted, ()).holds

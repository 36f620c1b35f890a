"""A repro that does not show its failure says what may help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchreel.commands.views import export as view
from torchreel.minifier.repro import Exported
from torchreel.minifier.repro.check import CheckResult
from torchreel.minifier.scripts.script import Script


def _unverified(detail: str) -> Exported:
    story: Any = None
    check = CheckResult(False, False, None, 1, "", detail)
    return Exported((), Script("program", "import lightning\n"), check, story)


def test_a_module_that_was_not_imported_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    detail = "ModuleNotFoundError: No module named 'lightning.pytorch'"
    assert view.report("run.db#1/0/0", _unverified(detail)) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "NOT verified" in said
    assert "add --import lightning where" in said


def test_of_another_failure_no_module_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert view.report("run.db#1/0/0", _unverified("ValueError: no")) == 1
    assert "--import" not in capsys.readouterr().err


def test_code_of_the_programs_own_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    exported = _unverified("it ended without an error")
    exported = replace(exported, own_code=("table.lowering:ns.cube.default",))
    assert view.report("run.db#1/0/0", exported) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "which the script lacks (table.lowering:ns.cube.default): put it at the top" in said

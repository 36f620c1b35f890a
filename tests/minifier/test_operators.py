"""A failure beside operators of the program's own: reduced and written down without its module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.minifier.recorded import record
from tests.replay.operators import join, split, twist
from torchreel.analysis.trust import needs_trust
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.minifier.cases.case import Case
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.minifier.minify import minify
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.scripts.operators import definitions
from torchreel.minifier.scripts.validation.scripts import check_script
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json


def failing(x: torch.Tensor) -> torch.Tensor:
    """pytorch#188213, after operators of every form."""
    parts = split(twist(x.relu(), 2).cos(), [1, 3])
    y = join([*parts, x])
    z = torch.ops.reeltest.where(y)
    b = y[:, :0]
    return torch.scatter(b, -1, b, b).sum() + z.sum()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        return record(tmp_path_factory.mktemp("operators") / "run.db", failing, torch.ones(4, 3))


@pytest.mark.slow
def test_it_is_written_down_with_definitions(path: Path, tmp_path: Path) -> None:
    """The script defines the operators itself, and shows the failure with torch alone."""
    with Store.open(path) as store:
        row = queries.latest_failing(store)
        assert row is not None
        exported = export(store, row, ExportOptions(tmp_path / "repro", formats=("repro",)))
    assert exported.check.exact, exported.check.detail
    assert exported.imports == ()
    assert 'torch.library.custom_op(\n    "reeltest::twist", twist_kernel' in exported.script.text
    assert 'schema="(Tensor x, SymInt k)' in exported.script.text


@pytest.mark.slow
def test_it_is_reduced_with_stand_ins(path: Path) -> None:
    with Store.open(path, write=True) as store:
        reduction = minify(store)
    assert (reduction.status, reduction.case.call_nodes) == ("fixpoint", 1)


@torch.library.custom_op("reeltest::untrained", mutates_args=())
def untrained(x: torch.Tensor) -> torch.Tensor:
    """An operator that has no backward."""
    return x * 2


@untrained.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def trained(x: torch.Tensor) -> torch.Tensor:
    return untrained(x.sin() * 2).sum()


@pytest.mark.slow
def test_an_operator_without_a_backward_fails_in_the_script_too(tmp_path: Path) -> None:
    """Torch gives it a backward that raises; a schema alone would be differentiated as zero."""
    path = record(tmp_path / "run.db", trained, torch.ones(4, 3, requires_grad=True))
    with Store.open(path, write=True) as store:
        row = queries.latest_failing(store)
        assert row is not None
        minify(store)
        exported = export(store, row, ExportOptions(tmp_path / "repro", formats=("repro",)))
    assert exported.check.exact, exported.check.detail
    assert "torch.library.custom_op(" in exported.script.text


@torch.library.custom_op("reeltest::mistaken", mutates_args=())
def mistaken(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone()


@mistaken.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((3, 5))


def runs_into_it(x: torch.Tensor) -> torch.Tensor:
    """Compiled for three rows; the run gives two."""
    return mistaken(x.sin()) + 1


@pytest.mark.slow
def test_the_command_that_is_named_next_trusts_where_the_kernel_decides(
    tmp_path: Path, path: Path
) -> None:
    ran = record(tmp_path / "run.db", runs_into_it, torch.ones(4, 3))
    for place, stage, trusts in ((ran, "run", True), (path, "lowering", False)):
        with Store.open(place) as store:
            row = queries.latest_failing(store)
            assert row is not None
            failure = queries.failure_of(store, row)
            assert failure is not None
            assert failure.stage == stage
            assert needs_trust(store, row) is trusts


def the_case(path: Path) -> Case:
    with Store.open(path) as store:
        row = queries.latest_failing(store)
        assert row is not None
        failure = queries.failure_of(store, row)
        assert failure is not None
        (case, *_) = starting_cases(store, row, failure)
    assert isinstance(case, Case)
    return case


def direct(x: torch.Tensor) -> torch.Tensor:
    """The same failure, with an operator that is given the input itself."""
    y = twist(x, 2)
    b = y[:, :0]
    return torch.scatter(b, -1, b, b).sum() + y.sum()


def test_a_definition_looks_up_no_size_that_a_reduction_took(tmp_path: Path) -> None:
    """As the stand-in of a reduction, which has the recorded sizes then."""
    case = the_case(record(tmp_path / "run.db", direct, torch.ones(4, 3)))
    assert "    return torch.zeros_like(x)" in definitions(case)[0]
    (recorded,) = case.checkpoint.inputs
    assert isinstance(recorded, dict)
    scalar: Json = {**recorded, "size": [], "stride": []}
    smaller = replace(case, checkpoint=replace(case.checkpoint, inputs=(scalar,)))
    assert "    return torch.zeros((4, 3), dtype=torch.float32)" in definitions(smaller)[0]


def test_a_definition_is_data(path: Path) -> None:
    """Of what a script can't define, it says which module has to be named."""
    case = the_case(path)
    known: Json = case.checkpoint.extra["operators"]
    assert isinstance(known, dict)
    known["reeltest.twist.default"] = {**known["reeltest.twist.default"], "effect": "ORDERED"}  # type: ignore[dict-item]
    with pytest.raises(UnsupportedError, match="--import"):
        definitions(case)
    known["reeltest.twist.default"] = {  # type: ignore[call-overload]
        **known["reeltest.twist.default"], "effect": None,  # type: ignore[dict-item]
        "schema": "reeltest::twist(Tensor x) -> Tensor\nimport os",
    }  # fmt: skip
    with pytest.raises(UnsupportedError, match="none"):
        definitions(case)


@pytest.mark.parametrize("function", ["define", "custom_op"])
def test_no_script_defines_an_operator_of_torchs_own(function: str) -> None:
    text = f'import torch\n\ntorch.library.{function}("aten::mine", "(Tensor x) -> Tensor")\n'
    with pytest.raises((UnsupportedError, UntrustedError), match="aten::mine"):
        check_script(text)
    check_script(text.replace("aten", "mine"))
    with pytest.raises((UnsupportedError, UntrustedError), match="a definition of the operator"):
        check_script(f'import torch\n\ntorch.library.{function}(name="mine::mine")\n')

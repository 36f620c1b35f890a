"""From a recorded call of torch.export that failed to the shortest program that fails like it."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import UserError
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import torchreel
from torchreel.commands.rendering import failure as console
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.minifier.cases.last_call import in_eager_mode, last_call
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.source.assemble.functions import Sources
from torchreel.minifier.source.assemble.names import Names
from torchreel.minifier.source.assemble.objects import Choice, Objects
from torchreel.minifier.source.passes import PHASES
from torchreel.minifier.source.passes.arguments import DropParameter, Parameters
from torchreel.store import Store, queries
from torchreel.store.records import Compile

TRUST = MinifyOptions(trust=True)


class Layer(nn.Module):
    """A linear layer whose constructor takes arguments."""

    def __init__(self, width: int, factor: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return self.linear(x) * self.factor


class Branches(nn.Module):
    """Two layers, and a branch that depends on data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(width, 0.5), Layer(width, 2.0)])
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The same shape."""
        for layer in self.layers:
            x = layer(x) + self.shift
        if mask is not None:
            x = x * mask
        return x.sin() if x.sum() > 0 else x.cos()


class Fixed(nn.Module):
    """It fixes a size that was to be dynamic, and another that is twice as large."""

    def forward(self, x: torch.Tensor, unused: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One number for each row."""
        return x.sum(1) + y.view(2, 4).sum(0)


def fails(path: Path, module: nn.Module, *args: Any, **options: Any) -> Path:
    """A recording of an export that fails."""
    with torchreel.record(path), contextlib.suppress(Exception):
        torch.export.export(module, args, **options)
    return path


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a branch on data, as torch.export traces it by default."""
    path = tmp_path_factory.mktemp("exports") / "run.db"
    return fails(path, Branches(4), torch.ones(2, 4), kwargs={"mask": torch.ones(4)})


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of sizes that are fixed, under Dynamo, with named dimensions."""
    path, batch = tmp_path_factory.mktemp("exports") / "run.db", Dim("batch", max=64)
    shapes = {"x": {0: batch}, "unused": {0: Dim.AUTO}, "y": (2 * batch,)}
    inputs = torch.ones(4, 3), torch.ones(5), torch.ones(8)
    return fails(path, Fixed(), *inputs, dynamic_shapes=shapes, strict=True)


def failed(store: Store) -> Compile:
    compile = queries.latest_failing(store)
    assert compile is not None
    return compile


def programs(path: Path) -> list[SourceCase]:
    with Store.open(path) as store:
        failure = queries.failure_of(store, failed(store))
        assert failure is not None
        found = starting_cases(store, failed(store), failure, TRUST)
    return [case for case in found if isinstance(case, SourceCase)]


def raised(text: str, kind: type[Exception]) -> str:
    """What a program raises."""
    with pytest.raises(kind, match=r".") as caught:
        exec(compile(text, "program.py", "exec"), {"__name__": "program"})
    return str(caught.value)


def test_without_trust_nothing_is_run(branches: Path) -> None:
    with Store.open(branches, write=True) as store, pytest.raises(UntrustedError, match="--trust"):
        minify(store)


def test_the_next_command_is_to_reduce_it(
    branches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(branches) as store:
        console.print_next(store, failed(store))
    assert capsys.readouterr().err.strip().endswith("--trust")


@pytest.mark.slow
def test_the_program_makes_the_module_and_exports_it(branches: Path) -> None:
    for case in programs(branches):
        end = case.text.splitlines()[-1]
        assert end.startswith("torch.export.export(model, (torch.randn(2, 4),), {'mask': ")
        assert "data-dependent" in raised(case.text, GuardOnDataDependentSymNode)


@pytest.mark.slow
def test_dimensions_and_options_are_written(strict: Path) -> None:
    first = programs(strict)[0].text
    assert "batch = torch.export.Dim('batch', max=64)" in first
    assert "{'x': {0: batch}, 'unused': {0: torch.export.Dim.AUTO}, 'y': (2*batch,)}" in first
    assert "strict=True)" in first
    assert "marked batch as dynamic" in raised(first, UserError)


def reduced(path: Path, folder: Path) -> list[str]:
    """The lines of the exported repro, after it has been verified."""
    with Store.open(path, write=True) as store:
        assert minify(store, options=TRUST).status == "fixpoint"
        exported = export(store, failed(store), ExportOptions(folder / "repro", trust=True))
    assert exported.check.exact or exported.check.holds
    return [line.strip() for line in ast.unparse(ast.parse(exported.script.text)).splitlines()]


@pytest.mark.slow
@pytest.mark.quality
def test_the_shortest_program(branches: Path, tmp_path: Path) -> None:
    lines = [line for line in reduced(branches, tmp_path) if line]
    assert lines[1:3] == ["class Branches(torch.nn.Module):", "def forward(self, x):"]
    assert lines[-1].startswith("torch.export.export(")
    assert len(lines) <= 6


@pytest.mark.slow
@pytest.mark.quality
def test_the_shortest_strict_program(strict: Path, tmp_path: Path) -> None:
    lines = [line for line in reduced(strict, tmp_path) if line]
    assert not any("unused" in line for line in lines)
    assert "dynamic_shapes=" in lines[-1]
    assert len(lines) <= 6


@pytest.mark.parametrize(
    ("call", "eager"),
    [
        ("torch.compile(f, fullgraph=True)(x, y=1)", "f(x, y=1)"),
        ("torch.export.export(m, (x,), {'k': y}, strict=True)", "m(*(x,), **{'k': y})"),
        ("torch.export.export(m, args=(x,), kwargs=k)", "m(*(x,), **k)"),
        ("torch.export.export(m)", "m(*())"),
    ],
)
def test_the_same_in_eager_mode(call: str, eager: str) -> None:
    assert ast.unparse(in_eager_mode(last_call(ast.parse(call)))) == eager


@pytest.mark.parametrize("text", ["f(x)", "torch.export.export()", "torch.export.export", ""])
def test_other_endings_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        in_eager_mode(last_call(ast.parse(text)))


MODEL = """import torch

class Model(torch.nn.Module):

    def forward(self, x, y, z=None):
        return x
{}
"""


@pytest.mark.parametrize(
    ("position", "call", "left"),
    [
        (2, "Model(), (a, b), {'z': c}", "Model(), (a,), {'z': c}"),
        (3, "Model(), (a, b), {'z': c}", "Model(), (a, b), {}"),
        (2, "Model(), (a, b), dynamic_shapes=(1, 2)", "Model(), (a,), dynamic_shapes=(1,)"),
        (2, "Model(), (a,), dynamic_shapes={'y': 2}", "Model(), (a,), dynamic_shapes={}"),
        (2, "Other(), (a, b)", "Other(), (a, b)"),
    ],
)  # fmt: skip
def test_a_parameter_goes_with_all_that_the_export_has_for_it(
    position: int, call: str, left: str
) -> None:
    case = SourceCase(MODEL.format(f"a = b = c = Other = 1\ntorch.export.export({call})"))
    edit = DropParameter("forward", position, "Model")
    made = Parameters().apply(case, [edit])
    assert made is not None
    assert made.text.splitlines()[-1] == f"torch.export.export({left})"


@pytest.mark.slow
def test_no_pass_breaks_the_call(branches: Path) -> None:
    """Each candidate is a program that still ends with a call of torch.export or torch.compile."""
    case = programs(branches)[0]
    for item in (item for tiers in PHASES for tier in tiers for item in tier):
        for edit in item.edits(case):
            made = item.apply(case, [edit])
            if isinstance(made, SourceCase):
                assert made.exports, item.name


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.GRU(3, 4, batch_first=True), "torch.nn.GRU(3, 4, batch_first=True)"),
        (nn.RNN(2, 2, nonlinearity="relu"), "torch.nn.RNN(2, 2, nonlinearity='relu')"),
        (nn.LSTM(3, 4, 2, bidirectional=True), "torch.nn.LSTM(3, 4, 2, bidirectional=True)"),
    ],
)
def test_a_recurrent_layer_is_one_call(module: nn.Module, text: str) -> None:
    """Its constructor says what it takes in overloads alone."""
    objects = Objects(Sources({}), Names(()), Choice())
    assert objects.expression(module) == text


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (lambda x, /, y, z=3: x + y + z, "x, /, y, z=3"),
        (lambda *xs, k=2: sum(xs) * k, "*xs, k=2"),
        (lambda x, *, k, **rest: x * k + len(rest), "x, *, k, **rest"),
    ],
)
def test_a_lambda_keeps_its_parameters(function: FunctionType, parameters: str) -> None:
    objects = Objects(Sources({}), Names(()), Choice())
    objects.function(function)
    (definition,) = objects.definitions
    assert f"({parameters}):" in definition.text

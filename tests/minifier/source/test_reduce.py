"""From a recorded frame to the shortest program that fails like it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from tests.minifier.recorded import record
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.source.assemble.child import programs
from torchreel.minifier.source.assemble.functions import Sources
from torchreel.minifier.source.assemble.names import Names
from torchreel.minifier.source.assemble.objects import Choice, Objects
from torchreel.replay import replay
from torchreel.replay.child.frames.bundles import read_bundle
from torchreel.store import Store, queries
from torchreel.torch_compat.autograd import transforms
from torchreel.torch_compat.autograd.functions import decorated

OFFSET = 3


def turned(values: list[torch.Tensor], by: int = 1) -> torch.Tensor:
    """What Dynamo can't trace: a method of a deque."""
    queue = collections.deque(values)
    queue.rotate(by)
    return queue[0] + OFFSET


class Layer(nn.Module):
    """A linear layer, and something that it does not need."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = 0.5
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return self.linear(x) * self.scale + self.shift

    def unneeded(self) -> None:
        """Never called."""


class Model(nn.Module):
    """Two layers and the helper."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(8), Layer(8)])
        self.norm = nn.LayerNorm(8).eval()
        self.layers[1].linear.weight = self.layers[0].linear.weight

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The same shape."""
        seen = []
        for layer in self.layers:
            x = self.norm(layer(x))
            seen.append(x)
        if mask is not None:
            x = x * mask
        return turned(seen) + x


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the model, which fails in stage 'dynamo'."""
    path = tmp_path_factory.mktemp("source") / "run.db"
    return record(path, Model(), torch.ones(2, 8), named={"mask": torch.ones(8)}, fullgraph=True)


@pytest.fixture(scope="module")
def texts(store: Path) -> list[str]:
    """The programs that are made of it."""
    with Store.open(store) as opened:
        compile = queries.latest_failing(opened)
        assert compile is not None
        bundle = read_bundle(opened, compile, trust=True)
    return programs(bundle.data, bundle.document, bundle.place, [])


def test_without_trust_nothing_is_run(store: Path) -> None:
    """A frame is a pickle."""
    with Store.open(store, write=True) as opened, pytest.raises(UntrustedError, match="--trust"):
        minify(opened)
    with Store.open(store) as opened:
        compile = queries.latest_failing(opened)
        assert compile is not None
        with pytest.raises(UntrustedError, match="--trust"):
            export(opened, compile, ExportOptions(store.parent / "repro"))


def test_the_program_is_the_frame(texts: list[str]) -> None:
    """It has what ran, as it was, and nothing of what did not."""
    text = texts[0]
    for part in (
        "class Model(torch.nn.Module):",
        "def turned(values, by=1):",
        "OFFSET = 3",
        "queue = collections.deque(values)",
        "torch.nn.LayerNorm((8,)).eval()",
        ".register_buffer('shift', torch.randn(8))",
        "layer.scale = 0.5",
        "torch.compile(Model.forward, fullgraph=True)(model, ",
        "mask=torch.randn(8))",
    ):
        assert part in text
    assert "unneeded" not in text
    assert text.count("torch.nn.Parameter") <= 1


@pytest.mark.slow
def test_the_program_stands_alone(texts: list[str], tmp_path: Path) -> None:
    """By itself, in a fresh process, it fails as recorded."""
    program = tmp_path / "program.py"
    program.write_text(texts[0])
    command = [sys.executable, "-I", str(program)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Unsupported method call" in found.stderr
    assert "rotate" in found.stderr


def test_a_document_that_is_no_program_is_refused() -> None:
    """With a sentence."""
    observing = [{"kind": "source", "text": "f()", "observes": o} for o in ("a b", "x = 1", "f(")]
    for data in ({"kind": "source"}, {"kind": "source", "text": "def"}, *observing):
        with pytest.raises(UnsupportedError):
            SourceCase.from_json(json.loads(json.dumps(data)))
    case = SourceCase("import torch\n", ("a",), 3, False)
    assert SourceCase.from_json(json.loads(case.to_bytes())) == case


@pytest.mark.slow
@pytest.mark.quality
def test_the_shortest_program(store: Path, tmp_path: Path) -> None:
    """A few lines are left, and show the same in a fresh process that has torch alone."""
    options = MinifyOptions(trust=True)
    with Store.open(store, write=True) as opened:
        reduction = minify(opened, options=options)
        assert reduction.status == "fixpoint"
        again = minify(opened, options=options)
        assert again.oracle_runs == 0
        compile = queries.latest_failing(opened)
        assert compile is not None
        exported = export(opened, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.exact or exported.check.holds
    body = [line for line in exported.script.text.splitlines() if line and line[0] != "#"]
    assert len(body) <= 15
    assert any(".rotate(" in line for line in body)
    assert torchreel.__name__ not in "".join(body)


@dataclasses.dataclass
class Point:
    """Its methods are made from its fields."""

    x: int
    y: list[int] = dataclasses.field(default_factory=list)
    z: float = 0.5


def measured() -> Callable[[torch.Tensor], torch.Tensor]:
    """A function with a tensor, an operator, an object, and a class that holds a list."""
    weight, log, cosine = torch.ones(2), [Point(4)], torch.ops.aten.cos.default

    class Timer:
        def touch(self) -> None:
            log.append(Point(len(log), z=1.5))

    counts: Any = collections.defaultdict(int, a=1)
    last: Any = collections.deque([1, 2], maxlen=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        Timer().touch()
        counts["b"] += counts["a"]
        last.append(3)
        return cosine(x) * weight + log[-1].x + log[-1].z

    return function


@pytest.mark.parametrize("closures", [False, True])
def test_what_closures_hold_is_written(closures: bool) -> None:
    """Tensors by name, lists once, dataclasses with their fields: the program can be run."""
    objects = Objects(Sources({}), Names(()), Choice(closures=closures))
    name = objects.function(measured())
    lines = objects.tensors.written([*objects.statements, f"result = {name}(torch.zeros(2))"])
    parts = [*objects.names.lines.values(), *(d.text for d in objects.definitions), *lines]
    names: dict[str, Any] = {"torch": torch}
    exec("\n".join(parts), names)
    assert names["result"].shape == (2,)
    assert names["counts"] == {"a": 1, "b": 1}
    assert list(names["last"]) == [2, 3]
    (log,) = [value for value in names.values() if isinstance(value, list)]
    assert [(point.x, point.z) for point in log] == [(4, 0.5), (1, 1.5)]
    assert ("def make_Timer(" in "\n".join(parts)) == closures


class Doubled(torch.autograd.Function):
    """What torch documents as two static methods."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the double."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient."""
        return gradient * 2


class Moded:
    """Has methods under decorators of torch, with and without arguments."""

    @torch.no_grad()
    def first(self, x: torch.Tensor) -> torch.Tensor:
        """Return a result without a gradient."""
        return x + 1

    @staticmethod
    @torch.inference_mode(False)
    def second(x: torch.Tensor) -> torch.Tensor:
        """Return another."""
        return x + 1


@torch.set_grad_enabled(True)
def graded(x: torch.Tensor) -> torch.Tensor:
    """Return a result with a gradient."""
    return Doubled.apply(x)


def moded(x: torch.Tensor) -> list[bool]:
    """Say which results have a gradient."""
    results = [Moded().first(x), Moded.second(x), graded(x)]
    return [result.requires_grad for result in results]


@pytest.mark.parametrize("closures", [False, True])
def test_decorators_of_torch_are_written_as_such(closures: bool) -> None:
    """Nobody knows `no_grad` by the closure that it makes, nor `Function` by its file."""
    objects = Objects(Sources({}), Names(()), Choice(closures=closures))
    name = objects.function(moded)
    made = [*objects.names.lines.values(), *(d.text for d in objects.definitions)]
    text = "\n".join([*made, *objects.statements])
    assert "class Doubled(torch.autograd.Function):\n    @staticmethod\n" in text
    assert "    @torch.no_grad()\n    def first(self, x):" in text
    assert "    @staticmethod\n    @torch.inference_mode(False)\n    def second(x):" in text
    assert "= torch.set_grad_enabled(True)(" in text
    assert "ctx_factory" not in text
    names: dict[str, Any] = {}
    exec(text, names)
    with torch.no_grad():
        assert names[name](torch.ones(2, requires_grad=True)) == [False, True, True]


def test_only_decorators_of_torch_are_taken_off() -> None:
    """A function may have their name, and a closure that is not filled yet."""

    def maker() -> Any:
        def decorate_context() -> object:
            return func, ctx_factory

        found = decorated(decorate_context)
        func, ctx_factory = moded, Moded().first
        return found, decorated(decorate_context)

    assert maker() == (None, None)
    assert decorated(moded) is None
    assert decorated(graded) == (torch.set_grad_enabled, [True], graded.__wrapped__)


def counted(x: torch.Tensor, pairs: Any, numbers: Any) -> torch.Tensor:
    """Use up what is left of the iterators, in a way that Dynamo refuses."""
    for place, (name, number) in pairs:
        x = x + place * len(name) + number
    return turned([x * next(numbers)])


def test_iterators_are_written_as_far_as_they_got(tmp_path: Path) -> None:
    """Python says how each of its own objects is copied."""
    pairs, numbers = enumerate(zip("ab", iter([3, 4]), strict=False), 5), iter([1, 2, 3])
    next(pairs), next(numbers)
    objects = Objects(Sources({}), Names([]), Choice())
    given = [objects.expression(pairs), objects.expression(numbers)]
    found: dict[str, Any] = {}
    exec("\n".join([*objects.names.lines.values(), *objects.statements]), found)
    assert list(found[given[0]]) == [(6, ("b", 4))]
    assert list(found[given[1]]) == [2, 3]
    assert list(pairs) == [(6, ("b", 4))]  # the object itself is as it was


def halted(x: torch.Tensor, times: int) -> torch.Tensor:
    """A graph break, and then a size that Dynamo can't follow."""
    y = x.relu()
    torch._dynamo.graph_break()
    first, last = x.sum().to(torch.int64), torch.tensor(9)
    return torch.arange(first, last).sum() + y * times


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in which the function fails that Dynamo made to go on after a graph break."""
    path = tmp_path_factory.mktemp("resumed") / "run.db"
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return record(path, halted, torch.ones(3), 2, backend="eager")


def test_a_resume_function_starts_with_the_whole_function(resumed: Path) -> None:
    """Which is called as it was called, with its source."""
    with Store.open(resumed) as opened:
        compile = queries.latest_failing(opened)
        assert compile is not None
        assert compile.frame_name is not None
        assert compile.frame_name.startswith("torch_dynamo_resume_in_")
        bundle = read_bundle(opened, compile, trust=True)
    text = programs(bundle.data, bundle.document, bundle.place, [])[0]
    assert "def halted(x, times):" in text
    assert text.splitlines()[-1].endswith("(torch.randn(3), 2)")


@pytest.mark.slow
def test_the_failure_of_a_resume_function_is_reduced(resumed: Path, tmp_path: Path) -> None:
    """To the break, or to less."""
    options = MinifyOptions(trust=True)
    with Store.open(resumed, write=True) as opened:
        assert minify(opened, options=options).status == "fixpoint"
        compile = queries.latest_failing(opened)
        assert compile is not None
        exported = export(opened, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.exact or exported.check.holds
    assert "torch.arange(" in exported.script.text


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a compiled function that transforms call from outside."""
    path = tmp_path_factory.mktemp("mapped") / "run.db"
    linear = nn.Linear(4, 3)

    def function(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.tanh(linear(x)).sum() * scale

    def program(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        gradient = torch.func.grad(lambda value: compiled(value, scale))
        return torch.vmap(gradient)(x)  # type: ignore[no-any-return]

    torch._dynamo.reset()
    with torchreel.record(path), contextlib.suppress(torch._dynamo.exc.Unsupported):
        program(torch.randn(5, 4), torch.tensor(2.0))
    return path


@pytest.mark.slow
def test_the_transforms_around_a_frame_are_opened_again(mapped: Path) -> None:
    """With the levels and the tensors inside of them as they were, in the replay and the text."""
    with Store.open(mapped, write=True) as opened:
        compile = queries.latest_failing(opened)
        assert compile is not None
        verdict = replay(opened, compile, "frame", trust=True)
        bundle = read_bundle(opened, compile, trust=True)
    assert verdict.verdict == "identical"
    assert [set(level) for level in bundle.call.levels] == [{"vmap", "randomness"}, {"grad"}]
    frame = bundle.load()
    assert frame.args[0].shape == (5, 4)
    with transforms.opened(bundle.call.levels):
        inside, scale = transforms.all_wrapped(frame.args, frame.levels)
        assert inside.shape == (4,)
        assert transforms.unwrapped(inside)[1] == frame.levels[id(frame.args[0])]
    assert not torch._C._functorch.is_functorch_wrapped_tensor(scale)
    *_, opening, call = programs(bundle.data, bundle.document, bundle.place, [])[0].splitlines()
    assert "vmap_increment_nesting(5, 'same')" in opening
    assert "grad_increment_nesting()" in opening
    assert call.startswith("    torch.compile(")


@pytest.mark.slow
def test_a_failure_under_transforms_is_reduced(mapped: Path, tmp_path: Path) -> None:
    """The transform stays, since nothing fails without it."""
    with Store.open(mapped, write=True) as opened:
        assert minify(opened, options=MinifyOptions(trust=True)).status == "fixpoint"
        compile = queries.latest_failing(opened)
        assert compile is not None
        exported = export(opened, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.exact or exported.check.holds
    assert "_increment_nesting(" in exported.script.text


def broken(x: torch.Tensor) -> torch.Tensor:
    """What a program puts in place of a function of torch."""
    torch._dynamo.graph_break()
    return x * 2


class Patched(nn.Module):
    """It fails by what another one has put into a module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return nn.functional.gelu(x.relu()) + x.sin()


@pytest.mark.slow
def test_what_was_put_into_a_module_of_torch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(nn.functional, "gelu", broken)
        path = record(tmp_path / "run.db", Patched(), torch.ones(2, 8), fullgraph=True)
    with Store.open(path, write=True) as opened:
        assert minify(opened, options=MinifyOptions(trust=True)).status == "fixpoint"
        compile = queries.latest_failing(opened)
        assert compile is not None
        exported = export(opened, compile, ExportOptions(tmp_path / "repro", trust=True))
    assert exported.check.exact or exported.check.holds
    text = exported.script.text
    assert ".gelu = broken" in text
    assert ".sin()" not in text

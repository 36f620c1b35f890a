"""Real silent bugs of Dynamo's in torch 2.13.0, each reduced to the program that is all of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro import ExportOptions, export
from torchreel.store import Store, queries

# pytorch/pytorch#197896: what a method of a class that the program holds in a closure does to a
# closure of its own is dropped.
DROPPED = """\
import torch
def make():
    log = []
    class Timer:
        def __init__(self, name):
            self.name = name
        def touch(self, x):
            log.append((self.name, x.shape[0]))
    def scaled(x, scale=2.0):
        timer = Timer("a")
        for _ in range(3):
            timer.touch(x)
            x = x * scale + 1
        return x.sum()
    return scaled
torch.compile(make(), backend="eager", fullgraph=True)(torch.ones(3))
"""
DROPPED_LEAST = """\
import torch
def make_scaled(Timer):
    def scaled():
        Timer().touch()
    return scaled
def make_Timer(log):
    class Timer:
        def touch(self):
            log.append(self)
    return Timer
log = []
Timer = make_Timer(log)
scaled = make_scaled(Timer)
torch.compile(scaled, fullgraph=True, backend="eager")()
"""

# pytorch/pytorch#191821: a nested compile region that is met again takes the first one's global.
REGION = """\
from dataclasses import dataclass
import torch
@dataclass
class RegionInput:
    hidden: torch.Tensor
region_input = RegionInput(torch.tensor(0))
def helper(x):
    y = x.sin() + 3
    return y.cos().sum()
@torch.compiler.nested_compile_region
def region():
    return region_input.hidden + 1
def fn(hidden, other):
    global region_input
    total = helper(other)
    for _ in range(3):
        region_input = RegionInput(hidden)
        hidden = region()
    return hidden, total
torch.compile(fn, backend="eager", fullgraph=True)(torch.tensor(0), torch.ones(4))
"""
REGION_LEAST = """\
import dataclasses
import torch
@dataclasses.dataclass
class RegionInput:
    hidden: object
def region():
    return region_input.hidden + 1
def fn(hidden):
    global region_input
    for _ in range(2):
        region_input = RegionInput(hidden)
        hidden = region2()
    return (hidden,)
region_input = RegionInput
region2 = torch.compiler.nested_compile_region(region)
torch.compile(fn, backend="eager")(torch.randint(1, ()))
"""


@pytest.mark.slow
@pytest.mark.quality
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "least", "place"),
    [(DROPPED, DROPPED_LEAST, "log"), (REGION, REGION_LEAST, "result[0]")],
    ids=["dropped side effect", "nested compile region"],
)
def test_what_dynamo_does_wrong(tmp_path: Path, text: str, least: str, place: str) -> None:
    """No more is left than the bug takes, and a fresh process shows it with torch alone."""
    program, path = tmp_path / "program.py", tmp_path / "run.db"
    program.write_text(text)
    command = ["record", "-o", str(path), "--frames", "all", "--", sys.executable, str(program)]
    subprocess.run([sys.executable, "-m", "torchreel.cli", *command], check=True)
    with Store.open(path, write=True) as store:
        reduction = minify(store, accuracy=True, options=MinifyOptions(trust=True))
        assert reduction.status == "fixpoint"
        case = reduction.case
        assert isinstance(case, SourceCase)
        assert (ast.unparse(case.tree), case.observes) == (ast.unparse(ast.parse(least)), place)
        compile = queries.latest_failing(store)
        assert compile is not None
        exported = export(store, compile, ExportOptions(tmp_path / "repro", trust=True, checks=1))
    assert exported.check.exact

"""Record decompositions of exported programs, and make them again from data: all identical."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests import forks
from torchreel.commands.rendering import failure as console
from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.checkpoints.exported_programs import KEY, check_guard
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.replay import replay
from torchreel.replay.child.restore import restore
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

PROGRAM = """
import contextlib
import torch
from torch.export import Dim, default_decompositions, export


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.again = self.linear.weight
        self.register_buffer("count", torch.full((1,), 0.4375))
        self.register_buffer("mask", torch.ones(2), persistent=False)
        self.constant = torch.ones(2)

    def forward(self, x, others, *, k=None, flag=True):
        self.count.add_(1)
        y = torch.nn.functional.silu(self.norm(self.linear(x))) * self.mask + self.constant
        z = torch.cond(x.sum() > 0, torch.sin, torch.cos, (y,)) + torch.tensor([1.0, 2.0])
        return {"a": z + others["y"] + self.again[0], "b": (k, x.relu_()) if flag else 1}


class Unbacked(torch.nn.Module):
    def forward(self, x):
        n = x.max().item()
        torch._check(n >= 2)
        return torch.ones(n).sum() + x.nonzero().shape[0]


def fails(x):
    raise RuntimeError("no such decomposition")


batch = Dim("batch", max=64)
shapes = {"x": {0: batch}, "others": {"y": {0: batch}}, "k": None}
inputs = torch.ones(4, 2), {"y": torch.ones(4, 2)}
program = export(Model(), inputs, {"k": 3}, dynamic_shapes=shapes)
program.run_decompositions().run_decompositions({})
export(Unbacked(), (torch.tensor([3, 4]),), strict=True).run_decompositions()
table = default_decompositions()
table[torch.ops.aten.silu.default] = fails
with contextlib.suppress(RuntimeError):
    program.run_decompositions(table)
"""
USUAL, NONE, UNBACKED, OWN = range(4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("decompositions")
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TORCHREEL": f"full:{folder / 'run.db'}"}
    forks.run([sys.executable, folder / "program.py"], env=environment, check=True)
    with Store.open(folder / "run.db", write=True) as store:
        yield store


def decomposed(store: Store) -> list[Compile]:
    (program, *_) = queries.recordings(store)
    assert queries.lost(store, program.id) == []
    compiles = queries.compiles(store, program.id)
    return [row for row in compiles if row.backend == "run_decompositions"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [USUAL, NONE, UNBACKED])
def test_a_decomposition_is_made_again_from_data(store: Store, number: int) -> None:
    verdict = replay(store, decomposed(store)[number])
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert verdict.entry == "export"
    kinds = {row.kind for row in verdict.compared if row.identical}
    assert {"graph", "proxies.node", "fake_tensors.convert", "fake_tensors.dispatch"} <= kinds


@pytest.mark.slow
def test_a_function_of_the_program_needs_trust(store: Store) -> None:
    compile = decomposed(store)[OWN]
    refused = replay(store, compile)
    assert refused.verdict == "refused"
    assert "aten.silu.default" in refused.detail
    assert "--trust" in refused.detail
    verdict = replay(store, compile, trust=True)
    assert (verdict.verdict, verdict.difference) == ("identical", "")
    assert "failure" in {row.kind for row in verdict.compared if row.identical}


def test_what_comes_next_is_to_replay_it(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    compile = decomposed(store)[OWN]
    console.print_next(store, compile)
    assert "torchreel replay" in capsys.readouterr().err
    failure = queries.failure_of(store, compile)
    assert failure is not None
    with pytest.raises(UnsupportedError, match="decomposition of an exported program"):
        starting_cases(store, compile, failure)


def document(store: Store, number: int) -> CheckpointDoc:
    (checkpoint,) = queries.checkpoints(store, decomposed(store)[number])
    assert checkpoint.entry == "export"
    return CheckpointDoc.from_bytes(store.read_blob(checkpoint.digest))


def test_no_value_of_a_buffer_is_recorded(store: Store) -> None:
    assert b"count" in document(store, USUAL).to_bytes()
    assert (0.4375).hex().encode() not in document(store, USUAL).to_bytes()


def changed(store: Store, **members: Any) -> CheckpointDoc:
    """A checkpoint whose program says something else."""
    doc = document(store, USUAL)
    found = doc.extra[KEY]
    assert isinstance(found, Mapping)
    return dataclasses.replace(doc, extra={**doc.extra, KEY: {**found, **members}})


EVIL = '__import__("os").abort()'
CALL = {"path": "", "inputs": [], "outputs": [], "out": 0, "arguments": []}


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"inputs": [{"kind": "CUSTOM_OBJ"}]}, "not data"),
        ({"inputs": [{"kind": "USER_INPUT", "arg": {"kind": "eval", "name": "x"}}]}, "not data"),
        ({"state": [[EVIL, {"k": "int", "v": 1}, "x"]], "constants": []}, "letters, digits"),
        ({"state": [["forward", {"k": "int", "v": 1}, "x"]], "constants": []}, "every module"),
        ({"calls": [{**CALL, "in": {"d": [[EVIL, {"opaque": {}}]]}}]}, "no portable form"),
        ({"calls": [{**CALL, "in": {"d": [[None, 0]]}}]}, "is not data"),
        ({"calls": [{**CALL, "in": 0, "arguments": [EVIL]}]}, "letters, digits"),
        ({"calls": []}, "how it is called"),
        ({"dialect": EVIL}, "dialect"),
        ({"tables": {}}, "malformed|no tables"),
        ({"tables": {"composite": {"less": [], "more": {EVIL: "preserve"}}}}, "target"),
    ],
)
def test_nothing_of_a_stranger_is_run(store: Store, members: Mapping[str, Any], why: str) -> None:
    with pytest.raises((UnsupportedError, UntrustedError), match=why):
        restore(changed(store, **members))


@pytest.mark.parametrize("code", ["L['x'].size()[0] <= 2*L['y'].size()[1]", "L['a'][0]['b'] == 1"])
def test_a_comparison_of_sizes_is_a_guard(code: str) -> None:
    check_guard(code)


@pytest.mark.parametrize(
    "code",
    ["print(1)", EVIL, "L['x'].__class__", "(lambda: 1)()", "[x for x in L]", "x := 1", "1 +"],
)
def test_a_guard_that_is_code_is_refused(code: str) -> None:
    """torch writes the sources of sizes into a function, and runs it."""
    with pytest.raises(UnsupportedError, match="guard"):
        check_guard(code)

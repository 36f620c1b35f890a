"""What a program adds to Inductor's tables replays on trust; without, a verdict names it."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.replay.programs import UNCACHED
from torchreel.replay.compare.verdict import IDENTICAL, REFUSED, Verdict
from torchreel.replay.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import canonical_json

# With kernels of libraries only: nothing is to be compiled by a C++ compiler.
PROGRAM = """
import torch
from torch._inductor.decomposition import register_decomposition
from torch._inductor.fx_passes import post_grad
from torch._inductor.lowering import lowerings, register_lowering
from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern

aten = torch.ops.aten

def power(name):
    @torch.library.custom_op(f"reeltables::{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x @ x
    operator.register_fake(lambda x: torch.empty_like(x))
    return getattr(torch.ops.reeltables, name)

squared, cubed = power("squared"), power("cubed")

@register_decomposition([squared.default])
def _(x):
    return torch.mm(x, x)

@register_lowering(cubed.default, type_promotion_kind=None)
def _(x):
    mm = lowerings[aten.mm.default]
    return mm(mm(x, x), x)

def plain(x): return torch.linalg.inv(x)
def decomposed(x): return squared(x)
def lowered(x): return cubed(x)
def matched(x): return x @ x.T

x = torch.eye(4)
for function in (plain, decomposed, lowered):
    torch.compile(function)(x)

@register_graph_pattern(
    CallFunction(aten.mm.default, Arg(), Arg()), pass_dict=post_grad.pass_patterns[1]
)
def swapped(match, a, b):
    product = match.output_node()
    product.args = (b, a)

torch.compile(matched)(x)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "program.py").write_text(PROGRAM)
    path = folder / "run.db"
    environment = {**os.environ, **UNCACHED, "TORCHREEL": f"full:{path}", "TORCHREEL_FRAMES": "all"}
    done = forks.run([sys.executable, folder / "program.py"], env=environment)
    assert done.returncode == 0, done.stderr
    return path


def verdicts(path: Path, entry: str | None, *, trust: bool) -> dict[str, Verdict]:
    """Return the verdict of each compile, by the name of its function."""
    with Store.open(path, write=True) as store:
        rows = queries.compiles(store, queries.recordings(store)[0].id)
        return {str(row.frame_name): replay(store, row, entry, trust=trust) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["graph", "frame"])
def test_entries_of_the_program_are_put_back_on_trust(recorded: Path, entry: str) -> None:
    found = verdicts(recorded, entry, trust=True)
    assert list(found) == ["plain", "decomposed", "lowered", "matched"]
    for name, verdict in found.items():
        assert verdict.verdict == IDENTICAL, f"{name}: {verdict}\n{verdict.difference}"


@pytest.mark.slow
def test_without_trust_a_verdict_names_what_was_missing(recorded: Path) -> None:
    found = verdicts(recorded, "graph", trust=False)
    assert found["plain"].verdict == IDENTICAL  # nothing of it is decided by an entry
    for name, entry in (
        ("decomposed", "table.decomposition:reeltables.squared.default"),
        ("lowered", "table.lowering:reeltables.cubed.default"),
        ("matched", "table.pattern:post_grad.pass_patterns.1:0"),
    ):
        assert found[name].verdict == REFUSED, name
        assert entry in found[name].detail
        assert "add --trust" in found[name].detail


def _put_in(path: Path, flag: Path) -> None:
    """Put a pickle that makes a folder into each checkpoint, under names of all its objects."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(flag),)

    evil = {
        "data": base64.b64encode(pickle.dumps(Evil())).decode(),
        "document": {"tensors": [], "lines": {}},
    }
    names = (
        "table.decomposition:aten.sin.default", "table.lowering:aten.mm.default",
        "table.pattern:post_grad.pass_patterns.1:0", "inductor.post_grad_custom_post_pass",
    )  # fmt: skip
    with Store.open(path, write=True) as store:
        (row, *_) = queries.compiles(store, queries.recordings(store)[0].id)
        for checkpoint in queries.checkpoints(store, row):
            document = json.loads(store.read_blob(checkpoint.digest))
            document["extra"]["objects"] = dict.fromkeys(names, evil)
            with store.writer() as writer:
                digest = writer.blob(canonical_json(document))
                writer.update("checkpoints", checkpoint.id, digest=digest)


@pytest.mark.slow
def test_an_entry_of_a_stranger_is_loaded_on_trust_only(recorded: Path, tmp_path: Path) -> None:
    path, flag = tmp_path / "run.db", tmp_path / "owned"
    shutil.copy(recorded, path)
    _put_in(path, flag)
    with Store.open(path, write=True) as store:
        (row, *_) = queries.compiles(store, queries.recordings(store)[0].id)
        for entry in ("graph", "aot", "shapes"):
            replay(store, row, entry)
            assert not flag.exists(), entry
        replay(store, row, "graph", trust=True)
    assert flag.exists()  # trust means that

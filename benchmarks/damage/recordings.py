"""The real recordings that are damaged, each small, each with something that the others lack.

Lives here: the programs, and recording them once into a folder.  Not here: how they are damaged
(`mutants`).  Called by `benchmarks.damaged`.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

_PLAIN = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
    def forward(self, x):
        return self.norm(x + torch.nn.functional.gelu(self.a(x)))
torch.compile(Block())(torch.randn(4, 8)).sum().backward()
"""
_DYNAMIC = """
import torch
def fn(x):
    y = x.relu() * x.shape[0]
    torch._dynamo.graph_break()
    return y.sin() if x.shape[0] > 4 else y.cos()
f = torch.compile(fn, backend="aot_eager")
for size in (3, 5, 7):
    f(torch.randn(size, 2))
"""
_FAILING = """
import torch
def fn(x):
    b = torch.nn.functional.adaptive_max_pool1d(torch.special.ndtri(x), (0,))
    return torch.nn.functional.hardswish(torch.scatter(b, -1, b, b))
try:
    torch.compile(fn)(torch.rand([4, 8]))
except Exception as error:
    print(type(error).__name__)
"""
_TINY = 'import torch\ntorch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))\n'
_PROGRAMS = {
    "plain": (_PLAIN, ()),
    "dynamic": (_DYNAMIC, ("--frames", "all")),
    "failing": (_FAILING, ()),
    "flight": (_FAILING, ("--mode", "flight")),
}
_DERIVED = {
    "reduced": ("failing", ("minify", "{}", "--limit-runs", "12", "--checks", "1")),
    "replayed": ("plain", ("replay", "{}")),
}


def recordings(folder: Path) -> dict[str, Path]:
    """The recordings by name, made where the folder lacks one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.py").write_text(_TINY)
    for name, (source, options) in _PROGRAMS.items():
        program, path = folder / f"{name}.py", folder / f"{name}.db"
        program.write_text(source)
        _make(path, "record", "-o", str(path), *options, "--", sys.executable, str(program))
    for name, (base, command) in _DERIVED.items():
        path = folder / f"{name}.db"
        if not path.exists():
            shutil.copy(folder / f"{base}.db", folder / "draft.db")
            _run(*(word.format(folder / "draft.db") for word in command), cwd=folder)
            _settled(folder / "draft.db")
            (folder / "draft.db").rename(path)
    return {name: folder / f"{name}.db" for name in (*_PROGRAMS, *_DERIVED)}


def _make(path: Path, *command: str) -> None:
    if not path.exists():
        _run(*command, cwd=path.parent)
        _settled(path)


def _run(*command: str, cwd: Path) -> None:
    subprocess.run([sys.executable, "-m", "torchreel.cli", *command], cwd=cwd, check=False)


def _settled(path: Path) -> None:
    """Copy the log into the file, so that a copy of the file is a copy of the store."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

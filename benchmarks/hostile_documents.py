"""Can a stranger's checkpoint reach anything?  Changed checkpoints, replayed under a witness.

    python -m benchmarks.hostile_documents [--documents N] [--from M] [--planted]

Records programs that leave a checkpoint of each kind (a graph, a piece of one, an ATen graph of
forward, backward and inference, an exported program with decompositions), changes one to three
places of one of them N times (4,000 by default, from the M-th on), and replays what comes of it in
a child with the rules alone: without the sandbox, which would hide what gets through them.  Every
field has the same chance, however often it stands in a checkpoint.  `hostile` has the graphs
themselves.

Prints what was replayed and refused, by reason.  Exits with 1 if a canary was touched, or if less
than a tenth was replayed.  `--planted` evaluates texts of a checkpoint: then canaries must be
found.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hostile import Tally, Witness, attempt_all, in_batches
from benchmarks.hostile_graphs import FUNCTIONS, MARK, TEXTS

PROGRAMS = {
    "graphs": """
import torch
from functorch.experimental.control_flow import cond
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)
        self.register_buffer("scale", torch.ones(8))
    def forward(self, x, flag=2.5):
        x = self.norm(x * self.scale + torch.nn.functional.gelu(self.a(x))) * flag
        return cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), [x])
torch._dynamo.mark_dynamic(x := torch.randn(4, 8), 0)
torch.compile(Block(), backend="aot_eager")(x).sum().backward()
def nonzero(x):
    u = x.nonzero()
    torch._check(u.size(0) > 1)
    return u.float().sum() * x.shape[0]
with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    torch.compile(nonzero, backend="aot_eager", dynamic=True)(torch.ones(5))
""",
    "aten": """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))
f = torch.compile(model, dynamic=True, options={"max_autotune": False})
f(torch.randn(4, 8)).sum().backward()
with torch.no_grad():
    f(torch.randn(4, 8))
""",
    "exports": """
import torch
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))
    def forward(self, given, *, flag=True):
        self.seen.add_(1)
        y = torch.nn.functional.gelu(self.a(given["x"])) + self.seen
        return {"y": torch.nn.functional.silu(y), "z": (y.sum(), 3)}
dim = torch.export.Dim("batch", min=2, max=64)
names = {"given": {"x": {0: dim}}, "flag": None}
given = ({"x": torch.randn(4, 8)},), {"flag": True}
program = torch.export.export(M(), *given, dynamic_shapes=names)
program.run_decompositions()
table = torch.export.default_decompositions()
table.pop(torch.ops.aten.silu.default, None)
program.run_decompositions(table)
""",
}
PAYLOADS: list[Any] = [
    *TEXTS, *FUNCTIONS, "", "x.__class__", "class", "../../" + MARK, f"x\n{TEXTS[0]}\n#",
    f"*/ {MARK}(); /*", f"'''+{TEXTS[0]}+'''", f'"""+{TEXTS[0]}+"""', f"opaque:{MARK}",
    f"{MARK}.system", f"L['{MARK}']", f"__main__:{MARK}", f"os:system({MARK})", "own:" + MARK,
    None, True, -1, 2**70, 1e308, [], {}, [[]], {"pickle": TEXTS[0]}, {"fn": "fn:os.system"},
    {"k": "opaque", "type": MARK, "reason": TEXTS[0]}, {"expr": TEXTS[0]}, {"source": TEXTS[0]},
]  # fmt: skip
_PATHS = ("os.remove", "os.rename", "os.mkdir", "shutil.", "os.symlink")
_Place = tuple[str | int, ...]


class FolderWitness(Witness):
    """Sees what Python does, but for what Inductor writes into the folder of its cache."""

    def __init__(self, mark: str, folder: Path) -> None:
        self.folder = str(folder.resolve())
        super().__init__(mark)

    def _is_forbidden(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event.startswith(("open", *_PATHS)):
            paths = [os.fsdecode(a) for a in arguments[:2] if isinstance(a, (str, bytes))]
            outside = [path for path in paths[: 1 + (event != "open")] if not self._is_own(path)]
            return bool(outside or not paths) and super()._is_forbidden(event, arguments)
        if event == "os.putenv":  # Inductor sets the folder of its cache to what it is
            return os.environb.get(arguments[0]) != arguments[1]
        return super()._is_forbidden(event, arguments)

    def _is_own(self, path: str) -> bool:
        return f"{os.path.realpath(path)}/".startswith(f"{self.folder}/")

    def _is_marked(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Return True for a program into which a text of the store was written as code."""
        if not super()._is_marked(event, arguments):
            return False
        if event == "exec":
            return not self._is_own(arguments[0].co_filename)  # seen when it was compiled
        is_source = isinstance(arguments[0], (str, bytes)) and self._is_own(str(arguments[1]))
        return not is_source or holds_code(arguments[0])


def holds_code(source: str | bytes) -> bool:
    """Return True if the mark stands in code, and not within a comment or a whole text."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return False  # it cannot run
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    names = [n.func for n in nodes if isinstance(n, ast.Call)]
    parts = [text.partition("(")[2] for text in TEXTS]
    cut = [t for t in texts if MARK in t and any(t in part for part in parts)]
    return bool(cut) or any(MARK in ast.unparse(name) for name in names)


class Documents:
    """The checkpoints of a store, and the n-th change of one."""

    def __init__(
        self, checkpoints: Sequence[dict[str, Any]], payloads: Sequence[Any] = PAYLOADS
    ) -> None:
        self.checkpoints, self._payloads = checkpoints, payloads
        self.places = [_places(document) for document in checkpoints]

    def changed(self, number: int) -> dict[str, Any]:
        """Return a checkpoint with one to three places changed."""
        chance = random.Random(number)
        which = chance.randrange(len(self.checkpoints))
        document: dict[str, Any] = json.loads(json.dumps(self.checkpoints[which]))
        for _ in range(chance.choice([1, 1, 2, 3])):
            places = self.places[which]
            *way, last = chance.choice(places[chance.choice(sorted(places))])
            with contextlib.suppress(KeyError, IndexError, TypeError):  # changed before
                self._change(chance, _at(document, way), last)
        return document

    def _change(self, chance: random.Random, holder: Any, last: str | int) -> None:
        how = chance.randrange(5)
        if how == 0 and isinstance(holder, dict):
            holder[str(chance.choice(TEXTS + FUNCTIONS))] = holder.pop(last)
        elif how == 1:
            other = chance.randrange(len(self.checkpoints))
            places = self.places[other]
            holder[last] = _at(
                self.checkpoints[other], chance.choice(places[chance.choice(sorted(places))])
            )
        elif how == 2 and isinstance(holder[last], str):
            holder[last] += str(chance.choice(TEXTS))
        else:
            holder[last] = chance.choice(self._payloads)


def _places(document: Any) -> dict[str, list[_Place]]:
    """The ways to all values, by field: the way without positions and names."""
    found: dict[str, list[_Place]] = defaultdict(list)
    for way in _walk(document, ()):
        field = "/".join("*" if isinstance(step, int) else step for step in way)
        found[re.sub(r"(modules|attributes|symbols)/[^/]+", r"\1/*", field)].append(way)
    return dict(found)


def _walk(value: Any, way: _Place) -> Iterator[_Place]:
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for step, child in children:
        yield (*way, step)
        yield from _walk(child, (*way, step))


def _at(document: Any, way: Sequence[str | int]) -> Any:
    for step in way:
        document = document[step]
    return document


# -- the child ------------------------------------------------------------------------------------


class Replays:
    """Replays changed checkpoints, one after the other, and sees what they do."""

    def __init__(self, folder: Path) -> None:
        cache = folder / "inductor"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
        self.documents = Documents(checkpoints_of(folder))
        for document in self.documents.checkpoints:  # import what torch imports at its first use
            with contextlib.suppress(Exception):  # as recorded: one asks Dynamo to trace again
                self._replay(document)
        self.witness = FolderWitness(MARK, cache)

    def attempt(self, number: int) -> dict[str, Any]:
        """Replay one; what came of it."""
        from torchreel.errors import RefusedError

        document = self.documents.changed(number)
        found: dict[str, Any] = {"number": number, "calls": 0, "whole": False, "unsound": []}
        self.witness.seen.clear()
        self.witness.watching = True
        try:
            self._replay(document, found)
        except RefusedError as error:
            found["refused"] = str(error)
        except Exception as error:  # noqa: BLE001  what torch says of a changed graph
            found["broken"] = f"{type(error).__name__}: {str(error)[:60]}"
        finally:
            self.witness.watching = False
        found["canaries"] = list(dict.fromkeys(self.witness.seen))
        return found

    def _replay(self, document: dict[str, Any], found: dict[str, Any] | None = None) -> None:
        from torchreel.formats.checkpoints.document import CheckpointDoc
        from torchreel.replay.child import restore
        from torchreel.replay.imposed import torch_machine
        from torchreel.torch_compat.inductor import code_generation

        doc = CheckpointDoc.from_bytes(json.dumps(document).encode())
        with (
            torch_machine.without_other_programs(),
            restore.imposed(doc),
            code_generation.without_cpp_compiler(),
        ):
            restored = restore.restore(doc)
            if found is not None:
                found["calls"] = 1
            restore.run(restored, backward=True)
            if found is not None:
                found["whole"] = found["compiled"] = True


def checkpoints_of(folder: Path) -> list[dict[str, Any]]:
    """Every checkpoint of the stores in a folder that replays, as parsed JSON."""
    from torchreel.store import queries
    from torchreel.store.database import Store

    found = []
    for path in sorted(folder.glob("*.db")):
        with Store.open(path) as store:
            for recording in queries.recordings(store):
                for compile in queries.compiles(store, recording.id):
                    for row in queries.checkpoints(store, compile):
                        found.append(json.loads(store.read_blob(row.digest)))
    return found


def record(folder: Path) -> None:
    """Record the programs, one store each, and one with the pieces of a split graph."""
    commands = {"pieces": ["-m", "tests.split_backends", "2", "standalone"]}
    for name, source in PROGRAMS.items():
        (folder / f"{name}.py").write_text(source)
        commands[name] = [str(folder / f"{name}.py")]
    caches = ("TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE")
    environment = {**os.environ, **dict.fromkeys(caches, "0")}  # a hit leaves no ATen graph
    for name, command in commands.items():
        words = ["record", "-o", str(folder / f"{name}.db"), "--", sys.executable, *command]
        subprocess.run(
            [sys.executable, "-m", "torchreel.cli", *words],
            check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1], env=environment,
        )  # fmt: skip


def plant() -> None:
    """Make a hole on purpose: texts with the mark are evaluated where a checkpoint is read."""
    from torchreel.formats.checkpoints.document import CheckpointDoc

    read = CheckpointDoc.from_bytes

    def evaluating(data: bytes) -> CheckpointDoc:
        document = json.loads(data)
        for text in filter(TEXTS.__contains__, map(str, _leaves(document))):
            with contextlib.suppress(Exception):
                eval(text)
        return read(data)

    CheckpointDoc.from_bytes = evaluating  # type: ignore[method-assign]


def _leaves(document: Any) -> Iterator[Any]:
    return (_at(document, way) for way in _walk(document, ()))


def attack(
    folder: Path,
    documents: int,
    first: int = 0,
    *,
    planted: bool = False,
    tally: Tally | None = None,
) -> Tally:
    """Attempt changed checkpoints of the stores in a folder in child processes, and count."""
    options = (str(folder), str(int(planted)))
    module = "benchmarks.hostile_documents"
    return in_batches(module, documents, first, options, tally or Tally())


def main(arguments: list[str]) -> int:
    """Attack, and report; the exit status."""
    if arguments[:1] == ["--child"]:
        replays = Replays(Path(arguments[3]))
        if int(arguments[4]):
            plant()
        attempt_all(replays.attempt, int(arguments[1]), int(arguments[2]))
        return 0
    planted = "--planted" in arguments
    words = [word for word in arguments if word != "--planted"]
    options = dict(zip(words[::2], words[1::2], strict=True))
    count, first = int(options.get("--documents", 4000)), int(options.get("--from", 0))
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(prefix="torchreel-hostile-") as name,
        contextlib.suppress(KeyboardInterrupt),  # what was done until then is reported
    ):
        record(Path(name))
        attack(Path(name), count, first, planted=planted, tally=tally)
    tally.report()
    return int(bool(tally.canaries) or tally.counts["executed"] * 10 < tally.counts["graphs"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

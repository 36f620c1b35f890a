"""Can a stranger's graph reach anything?  Many graphs that try to, run under a witness.

    python -m benchmarks.hostile [--graphs N] [--from M] [--planted]

Makes N graphs (100,000 by default, from the M-th on: a run that was stopped goes on there), checks
each by the rules of `formats.allowed`, and executes those that are admitted: every call on
fake inputs with symbolic sizes, every tenth graph on real tensors too, every hundredth through
AOTAutograd.  Inductor generates code for every tenth, which is never loaded; of every fifth,
admitted or not, the script that a user's command would get is written: both are looked through for
texts of the graph that became code.  They run in child processes, in which an audit hook of Python
watches for what no graph may do: start a program, open a file for writing, connect, change the
environment, import the canary, load a library, compile or execute a text with the canary in it.
Each value is also compared with what the rules inferred of its type.

Prints what was tried, admitted, refused (by reason) and executed.  Exits with 1 if a canary was
touched, if a value was of another type than inferred, or if less than a third was admitted.
`--planted` replaces the rules by those that went by the name alone: then canaries must be found.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import hostile_code

BATCH = 2000
_SHARE = 100
"""Graphs that one fork attempts: it may die of one, and what one does to torch ends with it."""
_MOST = 60
"""Seconds that one graph may take."""
_SILENCE = 300.0
"""Seconds without a finished graph, its own start included, after which a child hangs."""
_GENERATED = 5
"""The last digit of the graphs that Inductor writes code for."""
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn", "subprocess.",
    "socket.", "os.putenv", "os.unsetenv", "os.remove", "os.rename", "os.mkdir", "os.symlink",
    "shutil.", "urllib.", "ftplib.", "http.", "pickle.find_class",
)  # fmt: skip


class Witness:
    """Sees what Python does, while it is `watching`."""

    def __init__(self, mark: str) -> None:
        self.mark, self.seen, self.watching = mark, list[str](), False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and self._is_forbidden(event, arguments):
            self.watching = False
            self.seen.append(f"{event} {arguments!r:.120}")
            self.watching = True

    def _is_forbidden(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if self._is_of_cache(event, arguments):
            return False
        if event == "open":
            return bool(arguments[2] & _WRITING) and not str(arguments[0]).startswith("/dev/null")
        if event in ("import", "ctypes.dlopen"):
            return self.mark in str(arguments[0])
        if event in ("compile", "exec"):
            return self._is_marked(event, arguments)
        return event.startswith(_FORBIDDEN)

    def _is_of_cache(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether Inductor asks for its cache folder, which it then makes and names each time."""
        folder = os.environ.get(_CACHE, "")
        return (event, *arguments[:2]) in (
            ("os.putenv", _CACHE.encode(), folder.encode()), ("os.mkdir", folder, 0o777),
        )  # fmt: skip

    def _is_marked(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """A text with the mark that becomes a program; FX writes the text of any graph as one."""
        if event == "exec":
            code = arguments[0]
            return self.mark in repr(code.co_consts) and not _is_of_fx(code.co_filename)
        return self.mark in str(arguments[0]) and not _is_of_fx(str(arguments[1]))


def _is_of_fx(file: str) -> bool:
    return file.startswith(("<eval_with_key>", "<lambda", "<fx"))


# -- the child ------------------------------------------------------------------------------------


class Range:
    """Runs graphs, each with a ShapeEnv and fake inputs of its own, from one recorded compile."""

    def __init__(self, planted: bool) -> None:
        import torch

        from benchmarks.hostile_graphs import MARK

        self.torch, self.planted, self.mark = torch, planted, MARK
        self._made: tuple[Any, list[object]] | None = None
        self.doc = self._recorded()
        self.document = json.loads(self.doc.to_bytes())
        self.given = [n for n in self.document["graph"]["nodes"] if n["op"] == "placeholder"]
        types = {
            "symint": "int", "tensor": "tensor", "subclass": "tensor", "device_mesh": "mesh",
        }  # fmt: skip
        self.inputs = {
            node["name"]: types[described["k"]]
            for node, described in zip(self.given, self.document["inputs"], strict=True)
        }
        self._warm()
        self.witness = Witness(MARK)

    def _recorded(self) -> Any:
        """The checkpoint of a compile with symbolic sizes, floats, integers and booleans.

        And with a distributed tensor of one rank of two, and its mesh.
        """
        import torch._dynamo
        from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

        from torchreel.formats.checkpoints.document import CheckpointDoc, graph_checkpoint
        from torchreel.torch_compat import distributed

        torch = self.torch
        distributed.impose_world(0, 2)
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
        sharded = DTensor.from_local(torch.ones(2, 2), mesh, [Shard(0), Replicate()])
        docs = []

        def backend(gm: Any, inputs: Any) -> Any:
            docs.append(CheckpointDoc.from_bytes(graph_checkpoint(gm, inputs).to_bytes()))
            return gm.forward

        def function(x: Any, y: Any, i: Any, b: Any, c: Any, d: Any, mesh: Any) -> Any:
            whole = d.redistribute(mesh, [Replicate(), Replicate()]).to_local()
            return x.sum() + y.sum() * x.size(0) + i.sum() + b.sum() + c.sum() + whole.sum()

        torch._dynamo.mark_dynamic(x := torch.ones(3, 2), 0)
        others = (torch.ones(2, 2), torch.ones(3, dtype=torch.int64), torch.ones(2, 2) > 0)
        torch.compile(function, backend=backend)(
            x, *others, torch.ones(2, dtype=torch.complex64), sharded, mesh
        )  # fmt: skip
        return docs[0]

    def _warm(self) -> None:
        """Import what torch imports at its first use: it is no graph's doing."""
        from torchreel.replay.child import restore
        from torchreel.torch_compat.operators import dispatcher

        dispatcher.register_operators()
        restore.restore(self.doc)
        self._compile(restore.restore(self.doc), "aot_eager")
        hostile_code.generated(lambda: self._compile(restore.restore(self.doc), "inductor"))

    def document_of(self, number: int, only_walks: bool) -> Any:
        """The n-th graph, in place of the recorded one."""
        from benchmarks.hostile_graphs import KERNELS_TABLE, Attacker
        from torchreel.formats.graphs import KERNELS
        from torchreel.formats.graphs.document import GraphDoc

        attacker = Attacker(
            number, self.inputs, only_walks=only_walks, only_texts=number % 10 == _GENERATED
        )
        nodes, modules = attacker.graph()
        output = {
            "name": "output", "op": "output", "target": "output", "kwargs": {}, "meta": {},
            "args": [{"t": [{"n": attacker.values[-1]}]}],
        }  # fmt: skip
        whole = {"nodes": [*self.given, *nodes, output], "modules": modules, "attributes": {}}
        graph = GraphDoc.from_json(json.loads(json.dumps(whole)))
        return replace(self.doc, graph=graph, extra={**self.doc.extra, KERNELS: KERNELS_TABLE})

    def attempt(self, number: int, only_walks: bool = False) -> dict[str, Any]:
        """Check a graph, and execute it if it is admitted; what came of it."""
        from torchreel.errors import RefusedError

        doc = self.document_of(number, only_walks)
        found: dict[str, Any] = {"number": number, "calls": 0, "whole": False, "unsound": []}
        self.witness.seen.clear()
        self.witness.watching = True
        try:
            self._execute(doc, number, found)
        except RefusedError as error:
            found["refused"] = str(error)
        except Exception as error:  # noqa: BLE001  no graph may be more than refused
            found["broken"] = f"{type(error).__name__}: {error}"
        finally:
            self.witness.watching = False
        found["canaries"] = list(dict.fromkeys(self.witness.seen))
        code = found.pop("code", "")
        found["spoken"] = self.mark in code
        marked = hostile_code.marked_output_code(code, self.mark)
        found["canaries"] += [f"output code has {line!r}" for line in marked]
        if number % 5 == 0:
            self._write(doc, found)
        return found

    def _write(self, doc: Any, found: dict[str, Any]) -> None:
        """Write the script of a graph, as for the command of `minify`, and look for code in it."""
        from torchreel.errors import TorchreelError
        from torchreel.minifier.cases.case import Case
        from torchreel.minifier.scripts.script import candidate_script
        from torchreel.store.failures.signature import Signature

        wanted = Signature("exception", "lowering", "", ("KeyError",), (), "'weight'")
        try:
            case = Case.from_checkpoint(doc)
            text = candidate_script(case, wanted, trust=self.planted)
        except TorchreelError:
            return
        except Exception as error:  # noqa: BLE001  as above
            found["broken"] = f"{type(error).__name__}: {error}"
            return
        found["written"] = True
        marked = hostile_code.marked_code(text, self.mark)
        found["canaries"] += [f"a script has {line!r}" for line in marked]

    def _execute(self, doc: Any, number: int, found: dict[str, Any]) -> None:
        from torchreel.formats.graphs.check import check_graph
        from torchreel.formats.graphs.codec import decode_graph

        known = {} if self.planted else check_graph(doc.graph, doc.inputs)
        decoder, inputs = self._fakes(doc, number)
        graph = decode_graph(doc.graph, decoder, [], inputs=doc.inputs)
        with decoder.mode:
            found["calls"], found["whole"] = self._run(graph, inputs, known, found["unsound"])
        if number % 10 == 0:
            self._run(graph, self._real(doc), known, found["unsound"])
        if number % 100 == 0 and found["whole"]:
            found["compiled"] = self._compiled(doc)
        if number % 10 == _GENERATED:
            returned = found["calls"] - (not found["whole"])
            self._generate(self._up_to(doc, returned), found)

    def _fakes(self, doc: Any, number: int) -> tuple[Any, list[object]]:
        """Fake inputs; made anew for every tenth graph only, which is half of the work."""
        from torchreel.formats.shape_env import snapshots
        from torchreel.formats.tensors.fakes import Decoder
        from torchreel.torch_compat.tensors import fake_tensors

        if number % 10 == 0 or self._made is None:
            table = snapshots.decode_symbols(doc.shape_env)
            env = snapshots.new_shape_env(doc.shape_env)
            snapshots.restore(env, doc.shape_env, table)
            decoder = Decoder(fake_tensors.fake_mode(env, {}), table, doc.hints)
            self._made = decoder, [decoder.fake(description) for description in doc.inputs]
        return self._made

    def _real(self, doc: Any) -> list[object]:
        from torchreel.formats.shape_env import snapshots
        from torchreel.formats.tensors.synthetic import synthesise_all

        table = snapshots.decode_symbols(doc.shape_env)
        return synthesise_all(doc.inputs, seed=0, hints=doc.hints, table=table)

    def _compiled(self, doc: Any) -> bool:
        from torchreel.replay.child import restore

        with contextlib.suppress(Exception):
            self._compile(restore.restore(doc), "aot_eager")
            return True
        return False

    def _up_to(self, doc: Any, calls: int) -> Any:
        """Return the checkpoint with its graph cut after so many calls: those that returned."""
        *nodes, output = doc.graph.nodes
        called = [at for at, node in enumerate(nodes) if node.op.startswith("call_")]
        kept = nodes[: called[calls - 1] + 1] if calls else nodes
        values = [{"n": node.name} for node in kept if node.op.startswith("call_")]
        output = replace(output, args=[{"t": values or [{"n": kept[-1].name}]}])
        return replace(doc, graph=replace(doc.graph, nodes=[*kept, output]))

    def _generate(self, doc: Any, found: dict[str, Any]) -> None:
        """Have Inductor write the code of a graph."""
        from torchreel.replay.child import restore

        code = hostile_code.generated(lambda: self._compile(restore.restore(doc), "inductor"))
        if code is not None:
            found.update(generated=True, code=code)

    def _compile(self, restored: Any, name: str) -> None:
        from torchreel.torch_compat.dynamo import backends, contexts

        backend: Any = backends.backend(name, {})
        with contexts.tracing_context(restored.mode):
            backend(restored.graph, restored.inputs)

    def _run(
        self, graph: Any, inputs: list[object], known: Mapping[str, Any], unsound: list[str]
    ) -> tuple[int, bool]:
        """Call node after node, until one raises: how many were called, and whether all were."""
        interpreter = self.torch.fx.Interpreter(graph)
        interpreter.args_iter = iter(inputs)
        calls = 0
        for node in graph.graph.nodes:
            if node.op == "output":
                return calls, True
            calls += node.op.startswith("call_")
            try:
                value = interpreter.run_node(node)
            except Exception:  # noqa: BLE001  any operator may refuse its arguments
                return calls, False
            interpreter.env[node] = value
            if known and not _is_within(value, known[node.name]):
                target = self._name(node)
                unsound.append(f"{target} gave {type(value).__name__}, not {known[node.name]}")
        return calls, True

    def _name(self, node: Any) -> str:
        return getattr(node.target, "__qualname__", None) or str(node.target)


def _is_within(value: object, kind: Any) -> bool:
    """Whether a value is of the types that were inferred; of objects nothing is known."""
    from torchreel.formats.allowed import value_kinds

    found = value_kinds.of_value(value)
    if kind.types & value_kinds.NO_DATA:
        return True
    return found.types <= kind.types and found.inside <= kind.everything


def child(first: int, count: int, planted: bool, only_walks: bool) -> None:
    """Attempt some graphs, after what takes the rules away where that is wanted."""
    if planted:
        plant()
    ground = Range(planted)
    attempt_all(lambda number: ground.attempt(number, only_walks), first, count)


def attempt_all(attempt: Callable[[int], dict[str, Any]], first: int, count: int) -> None:
    """Attempt what has these numbers, a share in each fork; print one line of JSON for each."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    at = mmap.mmap(-1, 8)
    while count:
        share = min(_SHARE, count)
        if os.fork() == 0:
            _share(attempt, range(first, first + share), at)
            os._exit(0)
        _, status = os.wait()
        reached = first + share if status == 0 else int.from_bytes(at[:], "little") + 1
        if status != 0:
            print(json.dumps({"died": reached - 1}), flush=True)
        first, count = reached, count - (reached - first)


def _share(attempt: Callable[[int], dict[str, Any]], numbers: range, at: mmap.mmap) -> None:
    """In a fork, which may die: attempt some; `at` says which one is under way."""
    before = dict(os.environ)
    for number in numbers:
        at[:] = number.to_bytes(8, "little")
        signal.alarm(_MOST)  # which ends the fork, even within an operator
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            found = attempt(number)
        if dict(os.environ) != before or any(Path.cwd().iterdir()):
            found["canaries"].append("the environment or the folder has changed")
            before = dict(os.environ)
            for file in Path.cwd().iterdir():
                file.unlink()
        print(json.dumps(found), flush=True)


def plant() -> None:
    """Put the old rule in place of the new ones: by the name alone, whatever it is called on."""
    import torch

    from torchreel.errors import UnsupportedError
    from torchreel.formats import targets
    from torchreel.formats.graphs import codec
    from torchreel.torch_compat import distributed

    def by_name(doc: Any, inputs: Any = None, imports: Any = ()) -> dict[str, Any]:
        for node in doc.nodes:
            known = hasattr(torch.Tensor, node.target) or node.target in distributed.METHODS
            if node.op == "call_method" and not known:
                raise UnsupportedError(f"the method {node.target!r} is not one of tensors")
            if node.op == "call_function":
                targets.decode_target(node.target)
            private = node.target == "fn:builtins.getattr" and str(node.args[1]).startswith("_")
            if private or (node.op == "call_method" and node.target.startswith("_")):
                raise UnsupportedError("private names are not looked up")
        return {}

    codec.check_graph = by_name  # type: ignore[assignment]


# -- the parent -----------------------------------------------------------------------------------


class Tally:
    """What came of all graphs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.canaries: list[str] = []
        self.unsound: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()

    def add(self, found: Mapping[str, Any]) -> None:
        """Count one graph."""
        self.counts["graphs"] += 1
        for way in ("died", "hung"):
            if way in found:
                self.counts[way] += 1
                print(f"graph {found[way]}: the process {way}", flush=True)
                return
        refused = found.get("refused")
        if refused is not None:
            self.reasons[_reason(refused)] += 1
        else:
            self.counts["admitted"] += 1
        self.broken[found.get("broken", "")[:110]] += 1
        self.counts["executed"] += found["calls"] > 0
        self.counts["whole"] += found["whole"]
        self.counts["calls"] += found["calls"]
        self.counts["compiled"] += bool(found.get("compiled"))
        self.counts["generated"] += bool(found.get("generated"))
        self.counts["spoken"] += bool(found.get("spoken"))
        self.counts["written"] += bool(found.get("written"))
        self.unsound.update(f"{text} (graph {found['number']})" for text in found["unsound"])
        self.canaries += [f"graph {found['number']}: {text}" for text in found["canaries"]]

    def report(self) -> None:
        """Print it."""
        for name in (
            "graphs",
            "admitted",
            "executed",
            "whole",
            "calls",
            "compiled",
            "generated",
            "spoken",
            "written",
            "died",
            "hung",
        ):
            print(f"{name:10} {self.counts[name]:8}")
        for reason, count in self.reasons.most_common(25):
            print(f"refused    {count:8}  {reason}")
        del self.broken[""]
        for text, count in self.broken.most_common(10):
            print(f"broken     {count:8}  {text}")
        for text, count in self.unsound.most_common(20):
            print(f"UNSOUND    {count:8}  {text}")
        for text in self.canaries[:20]:
            print(f"CANARY     {text}")
        print(f"canaries   {len(self.canaries):8}")

    def is_bad(self) -> bool:
        """Whether something was reached, or too little was tried."""
        few = self.counts["admitted"] * 3 < self.counts["graphs"]
        return bool(self.canaries or self.unsound or few or not self.counts["graphs"])


def _reason(text: str) -> str:
    """A refusal without the names of nodes, and what was found."""
    text = re.sub(r"^(the node '\w+' is refused: )+", "", text)
    text = re.sub(r"(, found ).*", "", text, flags=re.DOTALL)
    return re.sub(r"'[^']*'|\"[^\"]*\"", "...", text)[:110]


def attack(
    graphs: int,
    first: int = 0,
    *,
    planted: bool = False,
    only_walks: bool = False,
    tally: Tally | None = None,
) -> Tally:
    """Attempt graphs in child processes, and count."""
    options = (str(int(planted)), str(int(only_walks)))
    return in_batches("benchmarks.hostile", graphs, first, options, tally or Tally())


def in_batches(module: str, graphs: int, first: int, options: Sequence[str], tally: Tally) -> Tally:
    """Let children of `module` attempt so many, from the first on, and count what they print."""
    end, at, began = first + graphs, first, time.monotonic()
    while at < end:
        count = min(BATCH, end - at)
        at = _batch(module, at, count, options, tally)
        if graphs > BATCH:
            seconds = time.monotonic() - began
            print(
                f"{at - first} of {graphs} graphs, {tally.counts['admitted']} admitted, "
                f"{len(tally.canaries)} canaries, {seconds:.0f} s; go on with --from {at}",
                flush=True,
            )
    return tally


def _batch(module: str, first: int, count: int, options: Sequence[str], tally: Tally) -> int:
    """The number of the graph after the last that was attempted: a child may die of one."""
    words = [str(first), str(count), *options]
    current = first
    prefix = "torchreel-hostile-"
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
        tempfile.TemporaryDirectory(prefix=prefix) as cache,
    ):
        root = str(Path(__file__).resolve().parents[1])
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--child", *words],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
            env={
                **os.environ, "PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1",
                _CACHE: cache,
            },
        )  # fmt: skip
        for line in _lines(process):
            tally.add(json.loads(line))
            current += 1
        hung = process.poll() is None
        if hung:
            process.send_signal(signal.SIGKILL)
        process.wait()
    if current < first + count:
        tally.add({"hung" if hung else "died": current})
        return current + 1
    return current


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines of a child, until it ends or says nothing for long."""
    assert process.stdout is not None
    waiting = selectors.DefaultSelector()
    waiting.register(process.stdout, selectors.EVENT_READ)
    pending = b""
    while waiting.select(_SILENCE):
        data = os.read(process.stdout.fileno(), 1 << 16)
        if not data:
            process.wait()
            return
        *lines, pending = (pending + data).split(b"\n")
        yield from lines


def main(arguments: list[str]) -> int:
    """Attack, and report; the exit status."""
    if arguments[:1] == ["--child"]:
        first, count, planted, only_walks = map(int, arguments[1:5])
        child(first, count, bool(planted), bool(only_walks))
        return 0
    options = {
        name: arguments[place + 1]
        for place, name in enumerate(arguments)
        if name in ("--graphs", "--from")
    }
    graphs, first = int(options.get("--graphs", 100_000)), int(options.get("--from", 0))
    tally = Tally()
    with contextlib.suppress(KeyboardInterrupt):  # what was done until then is reported
        attack(graphs, first, planted="--planted" in arguments, tally=tally)
    tally.report()
    return int(tally.is_bad())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Record programs with their frames, let Dynamo trace each again: everything identical."""

import importlib
import json
import os
import resource
import struct
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import forks
from tests.replay.frame_programs import KINDS, MAIN, MODULE
from torchreel.errors import UnsupportedError, UntrustedError, UsageError
from torchreel.events.frames import CacheMiss
from torchreel.formats.frames import parts
from torchreel.replay import Verdict, replay, until
from torchreel.replay.child.frames import bundles as read_bundles
from torchreel.replay.child.frames import modules
from torchreel.replay.sequence import replay_sequence
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile

Verdicts = Mapping[str, list[tuple[Compile, Verdict]]]


def _record(folder: Path, main: str, *, status: int = 0, **files: str) -> Path:
    for name, text in {"program": main, **files}.items():
        (folder / f"{name}.py").write_text(text)
    environment = {
        **os.environ,
        "TORCHREEL": f"full:{folder / 'run.db'}",
        "TORCHREEL_FRAMES": "all",
    }
    done = forks.run([sys.executable, folder / "program.py"], env=environment)
    assert done.returncode == status, done.stderr
    return folder / "run.db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("frames")
    _record(found, MAIN, kinds=MODULE)
    return found


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    with Store.open(folder / "run.db", write=True) as store:
        yield store


@pytest.fixture(scope="module")
def sequence(store: Store) -> Verdicts:
    """The whole recording, replayed in one process; verdicts by the name of the frame."""
    (program,) = queries.recordings(store)
    assert queries.lost(store, program.id) == []
    found: dict[str, list[tuple[Compile, Verdict]]] = {}
    for row in replay_sequence(store, program, trust=True):
        name = row.compile.frame_name.partition("_at_")[0]
        found.setdefault(name, []).append((row.compile, row.verdict))
    return found


def _all_of(store: Store) -> list[tuple[str, str]]:
    """Replay all frames of the one recording in one process; the verdicts with their details."""
    (program,) = queries.recordings(store)
    rows = replay_sequence(store, program, trust=True)
    return [(row.verdict.verdict, row.verdict.detail) for row in rows]


def _kinds(verdict: Verdict) -> set[str]:
    return {row.kind for row in verdict.compared if row.identical}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_dynamo_does_the_same_again(kind: str, sequence: Verdicts) -> None:
    for compile, verdict in sequence[kind]:
        told = (verdict.verdict, verdict.detail, verdict.difference)
        assert told == ("identical", "", "")
        assert {"frame.start", "describe_tensor", "attempt"} <= _kinds(verdict) or kind == "fails"
        if compile.status == "ok":
            assert {"output_graph.bytecode", "guards.guard", "shape_env.guards"} <= _kinds(verdict)
            graphs = [row for row in verdict.compared if row.kind == "graph"]
            # AOTAutograd asks for floats to be specialised when Dynamo's graph is there already.
            traced = 2 if kind == "floats" else 1
            assert sum(row.identical for row in graphs if row.stage == "dynamo") == traced


@pytest.mark.slow
def test_every_frame_of_the_recording_has_a_verdict(sequence: Verdicts) -> None:
    assert set(sequence) == {*KINDS, "Linear"}  # which "forward" exports
    told = [(verdict.verdict, verdict.detail) for _, verdict in sequence["Linear"]]
    assert set(told) == {("identical", "")}


@pytest.mark.slow
def test_a_training_step_is_compared_up_to_its_backward(sequence: Verdicts) -> None:
    for kind in ("forward", "autograd_function"):
        _, verdict = sequence[kind][0]
        assert {"joint", "forward", "backward"} <= {
            row.stage for row in verdict.compared if row.kind == "graph" and row.identical
        }


@pytest.mark.slow
def test_an_exported_module_has_the_lines_of_the_program(sequence: Verdicts, store: Store) -> None:
    compile, verdict = sequence["forward"][1]
    assert compile.frame_file.startswith("<eval_with_key>")
    (dump,) = [row for row in verdict.compared if row.kind == "dump_file"]
    assert dump.identical == 1
    (graph,) = [row for row in queries.graphs(store, compile) if row.stage == "dynamo"]
    assert b"torch/nn/modules/linear.py" in store.read_blob(graph.digest)


@pytest.mark.slow
def test_a_graph_break_restarts_again_and_its_rest_is_traced(sequence: Verdicts) -> None:
    ((compile, verdict),) = sequence["breaks"]
    assert compile.attempt == 1
    assert {"frame.graph_break", "frame.restart", "frame.speculation_failed"} <= _kinds(verdict)
    rest = sequence["torch_dynamo_resume_in_breaks"]
    assert [compile.attempt for compile, _ in rest] == [1, 0]


@pytest.mark.slow
def test_a_recompile_is_one_again_for_the_same_reason(sequence: Verdicts) -> None:
    first, *later = sequence["sizes"]
    assert "frame.cache_miss" not in _kinds(first[1])
    assert len(later) == 2
    for place, (_, verdict) in enumerate(later, 1):
        (misses,) = [row for row in verdict.compared if row.kind == "frame.cache_miss"]
        assert (misses.recorded, misses.identical) == (place, place)


@pytest.mark.slow
def test_a_failure_of_dynamos_has_the_same_signature(sequence: Verdicts) -> None:
    ((compile, verdict),) = sequence["fails"]
    assert compile.status == "failed"
    (failure,) = [row for row in verdict.compared if row.kind == "failure"]
    assert (failure.stage, failure.identical) == ("dynamo", 1)


@pytest.mark.slow
def test_a_backend_that_is_not_here_is_told(sequence: Verdicts) -> None:
    _, (_, verdict) = sequence["defaults"]
    assert any("--import" in note for note in verdict.notes)
    assert {row.stage for row in verdict.compared if row.identical} <= {"dynamo", "guards"}


@pytest.mark.slow
def test_one_frame_alone_brings_its_history(store: Store) -> None:
    (program, *_) = queries.recordings(store)
    found = [row for row in queries.compiles(store, program.id) if row.frame_name == "sizes"]
    verdict = replay(store, found[-1], "frame", trust=True)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert verdict.recording_id is not None
    again = queries.compiles(store, verdict.recording_id)
    assert [row.compile_id for row in again] == [found[-1].compile_id]


@pytest.mark.slow
def test_a_frame_stops_in_the_attempt_of_an_event(store: Store) -> None:
    (program, *_) = queries.recordings(store)
    first, second = (r for r in queries.compiles(store, program.id) if r.frame_name == "breaks")
    event = queries.events(store, second, "output_graph.compile")[0]
    verdict = replay(store, second, "frame", trust=True, until=until(at=event.seq))
    assert str(verdict) == f"identical up to event {event.seq}"
    counts = {row.kind: row.identical for row in verdict.compared}
    assert (counts["frame.start"], counts["frame.restart"]) == (2, 1)
    assert "graph" not in counts
    earlier = queries.events(store, first, "frame.graph_break")[0]
    verdict = replay(store, second, "frame", trust=True, until=until(at=earlier.seq))
    assert (verdict.verdict, verdict.reached.seq) == ("identical", earlier.seq)  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="has no stage lowering"):
        replay(store, second, "frame", trust=True, until=until(to="lowering"))


@pytest.mark.slow
def test_a_changed_source_is_the_likely_cause(store: Store, folder: Path) -> None:
    """What is called in a module is not in the bundle: it is the module that is here."""
    module = folder / "kinds.py"
    before = module.read_text()
    changed = before.replace("return y.sin() * SCALE", "return y.cos() * SCALE")
    assert changed != before
    module.write_text(changed)
    try:
        (program, *_) = queries.recordings(store)
        found = [r for r in queries.compiles(store, program.id) if r.frame_name == "global_values"]
        verdict = replay(store, found[-1], "frame", trust=True)
    finally:
        module.write_text(before)
    assert verdict.verdict == "diverged"
    assert "Module kinds has another source here." in verdict.cause


@pytest.mark.slow
def test_the_program_and_torch_may_lie_elsewhere_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a developer's machine, where what ran in production is looked at."""
    model = """
import torch
from part.scales import scaled
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return scaled(self.linear(x))
"""
    program = """
import torch
from model import Model
model = Model()
def step(x):
    return model(x).sum()
torch.compile(step, backend="aot_eager", dynamic=True)(torch.randn(3, 4)).backward()
"""
    server, packages = tmp_path / "server", tmp_path / "other" / "site-packages"
    for made in (server / "part", packages):
        made.mkdir(parents=True)
    (server / "part" / "scales.py").write_text("def scaled(x):\n    return x * x.shape[0]\n")
    (packages / "torch").symlink_to(Path(torch.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
    path = _record(server, program, model=model).rename(tmp_path / "run.db")
    server.rename(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here"))
    with Store.open(path, write=True) as store:
        (recorded,) = queries.recordings(store)
        (compile,) = queries.compiles(store, recorded.id)
        verdict = replay(store, compile, "frame", trust=True)
        files = [str(row.data) for row in queries.events(store, compile)]
    assert any("other/site-packages/torch/nn/modules/linear.py" in text for text in files)
    assert (verdict.verdict, verdict.detail) == ("identical", "")
    assert sum(row.identical for row in verdict.compared if row.kind == "graph") > 0


COUNTED = """
import torch
from torch._dynamo.testing import CompileCounter

class Counter:
    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward

def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2

x = torch.ones(3)
torch.compile(lambda x: x + 1, backend="eager")(x)
torch.compile(lambda x: x - 1, backend=Counter())(x)
torch.compile(broken, backend=Counter())(x)
torch._dynamo.optimize(CompileCounter())(lambda x: x * 3)(x)
"""


@pytest.mark.slow
def test_where_nothing_was_compiled_after_dynamo_trust_replays_dynamo(tmp_path: Path) -> None:
    path = _record(tmp_path, COUNTED)
    with Store.open(path, write=True) as store:
        (program,) = queries.recordings(store)
        found = [c for c in queries.compiles(store, program.id) if c.status != "restarted"]
        assert [compile.backend for compile in found] == [
            "eager", "Counter", "Counter", "Counter", "CompileCounter",
        ]  # fmt: skip
        assert any(compile.attempt for compile in found)
        plain = replay(store, found[0])
        trusted = [replay(store, compile, trust=True) for compile in found]
    assert plain.verdict == "refused"
    assert "--entry frame --trust" in plain.detail
    for verdict in trusted:
        assert (verdict.entry, verdict.verdict, verdict.detail) == ("frame", "identical", "")
        assert "graph" in _kinds(verdict)
        assert any("so Dynamo itself was replayed" in note for note in verdict.notes)


OPAQUE = """
import torch
from allowed import first, second

torch.compile(lambda x: first(x) * second(x), backend="aot_eager")(torch.ones(3))
"""
ALLOWED = """
import torch

def made(shift):
    @torch.compiler.allow_in_graph
    def own(x):
        return x.sin() + shift
    return own

first, second = made(1), made(2)  # of one name, so that a graph can't tell them apart
"""


@pytest.mark.slow
def test_a_graph_that_calls_the_program_is_replayed_from_its_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = _record(tmp_path, OPAQUE, allowed=ALLOWED)
    with Store.open(path, write=True) as store:
        (program,) = queries.recordings(store)
        (compile,) = queries.compiles(store, program.id)
        plain, trusted = replay(store, compile), replay(store, compile, trust=True)
    assert plain.verdict == "refused"
    assert "no portable form" in plain.detail
    assert (trusted.entry, trusted.verdict, trusted.detail) == ("frame", "identical", "")
    assert {"graph", "aot.metadata"} <= _kinds(trusted)
    assert any("because from the graph it is refused" in note for note in trusted.notes)


def test_only_what_was_moved_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded from a checkout may be installed here, among libraries that were not."""
    here = tmp_path / "site-packages"
    here.mkdir()
    for name in ("reel_moved", "reel_library"):
        (here / f"{name}.py").write_text("def function():\n    pass\n")
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(modules, "_MOVED", modules._Moved())
    assert modules.differences({"reel_moved": {"file": "/home/me/reel_moved.py"}}) == []
    files = {}
    for name in ("reel_moved", "reel_library"):
        files[name] = importlib.import_module(name).function.__code__.co_filename
        monkeypatch.delitem(sys.modules, name)
    assert files == {
        "reel_moved": "/home/me/reel_moved.py", "reel_library": str(here / "reel_library.py"),
    }  # fmt: skip


def test_a_frame_needs_trust(store: Store) -> None:
    (program, *_) = queries.recordings(store)
    compile = queries.compiles(store, program.id)[0]
    with pytest.raises(UntrustedError, match="add --trust"):
        replay(store, compile, "frame")
    with pytest.raises(UntrustedError, match="add --trust"):
        replay_sequence(store, program)


@pytest.mark.slow
def test_what_could_not_be_kept_is_named(tmp_path: Path) -> None:
    program = """
import torch
class Wild(property):  # with a state of C, which its members do not show
    def __reduce_ex__(self, protocol):
        raise ZeroDivisionError("never pickle me")
text = "many " * 2_000_000
def f(x, text):
    return x.sin()
torch.compile(f, backend="eager")(torch.ones(3), text)
torch.compile(lambda x, wild: x.cos() if wild else x, backend="eager")(torch.ones(3), Wild())
ones = (torch.ones(3) for _ in range(2))
torch.compile(lambda them: [x + 1 for _, x in them], backend="eager")(enumerate(ones))
"""
    with Store.open(_record(tmp_path, program), write=True) as store:
        (recorded,) = queries.recordings(store)
        large, wild, lazy = queries.compiles(store, recorded.id)
        with pytest.raises(UnsupportedError, match="larger than"):
            replay(store, large, "frame", trust=True)
        refused = replay(store, lazy, "frame", trust=True)
        verdict = replay(store, wild, "frame", trust=True)
    assert any("Wild: only code of its own could say" in note for note in verdict.notes)
    assert "not complete: a builtins.generator was not kept" in refused.detail


@pytest.mark.slow
def test_state_of_a_module_is_kept_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program entered into a module that it imports goes with its frames, if it can."""
    module = (
        "class Registry(dict):\n"
        "    def __setitem__(self, key, value): super().__setitem__(str(key), value)\n"
        "SCALES, FILES = Registry(), {}\n"
        "def scaled(x): return x * SCALES['much'].get('times', 1)\n"
        "def opened(x): return x * len(FILES)\n"
    )
    program = (
        "import os, torch, zoo\n"
        "zoo.SCALES['much'], zoo.FILES['one'] = {'times': 3}, open(os.devnull)\n"
        "torch.compile(lambda x: zoo.scaled(x), backend='eager')(torch.ones(3))\n"
        "torch.compile(lambda x: zoo.opened(x), backend='eager')(torch.ones(3))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Store.open(_record(tmp_path, program, zoo=module), write=True) as store:
        kept, named = (
            row.verdict for row in replay_sequence(store, queries.recording(store, 1), trust=True)
        )
    assert (kept.verdict, kept.detail) == ("identical", "")
    assert sum(row.identical for row in kept.compared if row.kind == "guards.guard") > 0
    assert named.verdict == "refused"
    assert named.detail.startswith("the frame read zoo.FILES, which the program had filled")


HOLDS = """
import collections, enum, os, threading
import torch

CONTEXT = CACHE = None
SIZES, LOCAL = (), threading.local()
DTYPE, ORDERED = torch.float32, collections.OrderedDict()

class Interface:
    KNOWN = {}

INTERFACE, OPTIONS = Interface(), Interface()

class Mode(enum.Enum):
    OFF = 1
    ON = 2

MODE = Mode.OFF

class Slots:
    __slots__ = ("scale",)

SLOTS = Slots()
SLOTS.scale = 1

def step(x):
    x = x.to(DTYPE) * SLOTS.scale
    if MODE is Mode.ON:
        x = x - 1
    for name in ORDERED:
        x = x * ORDERED[name]
    if CONTEXT is not None and CONTEXT.depth > 2:
        x = x * CONTEXT.depth
    if CACHE is not None:
        x = x + CACHE
    for size in SIZES:
        x = x - size
    for scale in getattr(LOCAL, "stack", []):
        x = x / scale
    if "much" in INTERFACE.KNOWN:
        x = x * INTERFACE.KNOWN["much"]
    if getattr(OPTIONS, "flag", None) is not None:
        x = x.tan()
    if os.environ.get("REEL_SWITCH") == "on":
        x = x.cos()
    return x
"""
SETS = """
import os, torch, holds

class Context:
    def __init__(self):
        self.depth = 3

class Stack(list):
    top = None

holds.CONTEXT, holds.CACHE, holds.SIZES = Context(), torch.ones(3), (1, 2)
holds.LOCAL.stack, holds.OPTIONS.flag = [2, 3], True
holds.DTYPE, holds.MODE, holds.SLOTS.scale = torch.float64, holds.Mode.ON, 5
holds.ORDERED["one"], holds.ORDERED["two"] = 3, 4
holds.Interface.KNOWN["much"] = 7
os.environ["REEL_SWITCH"] = "on"

@torch.compile(backend="eager")
def f(x, stack):
    return holds.step(x) * len(stack) + stack.top

stack = Stack([1, 2])
stack.top = 1
f(torch.ones(3), stack)
holds.CONTEXT = holds.CACHE = None
holds.SIZES = ()
holds.LOCAL.stack.pop()
holds.Interface.KNOWN.clear()
del os.environ["REEL_SWITCH"]
stack.top = 2
f(torch.ones(3), stack)
"""


@pytest.mark.slow
def test_what_modules_hold_that_the_program_had_put_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever type, wherever a guard found it; a second frame has what it was by then."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Store.open(_record(tmp_path, SETS, holds=HOLDS), write=True) as store:
        together = _all_of(store)
        compiles = queries.compiles(store, 1)
        alone = [replay(store, row, "frame", trust=True) for row in compiles]
    assert [(row.verdict, row.detail) for row in alone] == [("identical", "")] * 2
    assert together == [("identical", "")] * 2


@pytest.mark.slow
def test_no_variable_of_the_environment_is_kept_that_may_be_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REEL_TOKEN", "hunter2hunter2")
    program = (
        "import os, torch\n"
        "def f(x): return x.sin() if os.environ.get('REEL_TOKEN') else x.cos()\n"
        "torch.compile(f, backend='eager')(torch.ones(3))\n"
    )
    path = _record(tmp_path, program)
    with Store.open(path) as store:
        (compile,) = queries.compiles(store, 1)
        bundle = queries.frame_bundle(store, compile)
        assert bundle is not None
        assert bundle.tensors is not None
        document = json.loads(store.read_blob(bundle.tensors))
    assert document["patches"]["kept"] == []
    assert b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("torchreel.recorder.bundles made", parts.made),
        ("torchreel.recorder.bundles Opaque", parts.Opaque),
        ("torchreel.recorder.frames.bundles made", parts.made),
        ("torchreel.recorder.frames.bundles Opaque", parts.Opaque),
        ("torchreel.recorder.frames.bundles set_marked", parts.set_marked),
        ("torchreel.store.portable.frame_parts bare", parts.bare),
        ("torchreel.store.portable.frame_parts wrapped", parts.wrapped),
        ("torchreel.store.portable.frame_parts operator_at", parts.operator_at),
    ],
)
def test_what_bundles_of_older_versions_name_is_found(name: str, now: object) -> None:
    """Each of these stands in bundles as a global: where it moves, the table has to know."""
    module, _, attribute = name.partition(" ")
    pickled = b"c%s\n%s\n." % (module.encode(), attribute.encode())
    assert read_bundles._unpickled(pickled, [], "1/0/0") is now


MARKED = """
import torch

@torch.compiler.allow_in_graph
def own(x):
    return x.sin() + 1

@torch.compiler.allow_in_graph
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3

@torch._dynamo.nonstrict_trace
def untraced(x):
    return x.cos()

def program(x):
    return untraced(Double.apply(own(x)))

torch.compile(program, backend="eager")(torch.ones(3, requires_grad=True))
"""


@pytest.mark.slow
def test_functions_of_the_program_keep_their_marks(tmp_path: Path) -> None:
    """Functions of `__main__` are in the bundle by value: Dynamo knows marks by ids."""
    path = _record(tmp_path, MARKED)
    with Store.open(path, write=True) as store:
        (program,) = queries.recordings(store)
        (compile,) = queries.compiles(store, program.id)
        verdict = replay(store, compile, trust=True)
    assert (verdict.entry, verdict.verdict, verdict.detail) == ("frame", "identical", "")


HOOKED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.linear.register_forward_hook(self.add)
        self.linear.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))

    def add(self, module, inputs, output):
        return output + 1

    def forward(self, x):
        return self.linear(x).softmax(-1)

net = Net()
compiled = torch.compile(net, backend="aot_eager")
compiled(torch.randn(2, 4, requires_grad=True)).sum().backward()
with torch.inference_mode():
    compiled(torch.randn(3, 4))
with torch._dynamo.config.patch(wrap_top_frame=True):
    torch.compile(net.add, backend="aot_eager")(None, None, torch.ones(3))
torch.compile(torch.nn.functional.gelu, backend="aot_eager")(torch.ones(4))
"""


@pytest.mark.slow
def test_frames_of_torch_and_inputs_of_inference_mode(tmp_path: Path) -> None:
    """A module with hooks has its `forward` traced, although it stands in a file of torch's."""
    with Store.open(_record(tmp_path, HOOKED), write=True) as store:
        (program,) = queries.recordings(store)
        rows = queries.compiles(store, program.id)
        told = {row.place: replay(store, row, "frame", trust=True) for row in rows}
        names = {row.frame_name for row in rows}
    assert {"forward", "add", "gelu"} <= names
    assert {place: str(found.difference) for place, found in told.items() if found.difference} == {}
    assert {found.verdict for found in told.values()} == {"identical"}


LATER = """
import torch
from torch.func import grad, jvp, vmap

@torch.compiler.disable
def left_alone(x):
    return x + 1

def loss(w, x):
    return torch.tanh(w @ x).sum()

def first(w, x):
    return jvp(lambda y: vmap(grad(loss), (None, 0))(w, torch.stack([y, y * 2])), (x,), (x,))

def second(w, x):
    return vmap(grad(loss), (None, 0))(w, torch.stack([x, x * 2]))

def third(w, x):
    return jvp(lambda y: loss(w, y), (x,), (x,))

def broken(w, x):
    return left_alone(w @ x).sin()

for function in (first, second, third, broken):
    torch.compile(function, backend="aot_eager")(torch.ones(3, 4), torch.ones(4))
"""


@pytest.mark.slow
def test_what_torch_keeps_from_an_earlier_compile_is_imposed(tmp_path: Path) -> None:
    """Each frame is replayed alone, in a process that has compiled nothing before."""
    with Store.open(_record(tmp_path, LATER), write=True) as store:
        (program,) = queries.recordings(store)
        rows = queries.compiles(store, program.id)
        told = {
            (row.frame_name, row.place): replay(store, row, "frame", trust=True) for row in rows
        }
    assert {"first", "second", "third", "broken"} <= {name for name, _ in told}
    assert {key: str(found.difference) for key, found in told.items() if found.difference} == {}
    assert {found.verdict for found in told.values()} == {"identical"}


UNUSUAL = """
import torch
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

net = torch.nn.Sequential(weight_norm(torch.nn.Linear(4, 4)), spectral_norm(torch.nn.Linear(4, 4)))
torch.compile(net, backend="aot_eager")(torch.randn(3, 4))

class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.LazyLinear(3)

    def forward(self, x):
        return self.linear(x) * 2

compiled = torch.compile(Lazy(), backend="aot_eager")
compiled(torch.randn(2, 5))
"""


@pytest.mark.slow
def test_modules_that_refuse_to_be_pickled_are_kept(tmp_path: Path) -> None:
    """Parametrised ones have classes made at run time, lazy ones parameters without a size."""
    with Store.open(_record(tmp_path, UNUSUAL), write=True) as store:
        (program,) = queries.recordings(store)
        told = {
            row.compile.place: row.verdict for row in replay_sequence(store, program, trust=True)
        }
    assert len(told) > 1
    assert {place: (found.verdict, found.detail) for place, found in told.items()} == dict.fromkeys(
        told, ("identical", "")
    )


OWN_PICKLES = """
import pickle
import torch

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))
        torch.nn.init.constant_(self.part.weight, 1234.5678)
        self.sizes = {"large", "medium", "small", "tiny", "none"}

    def __getstate__(self):
        state = {**self.__dict__, "kept": pickle.dumps(self.part)}
        state["_modules"] = {}
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._modules["part"] = pickle.loads(state["kept"])

    def forward(self, x, size, image):
        if size in SIZES and size in self.sizes and len(image) > 5:
            return self.part(x)
        return x

SIZES = {"small", "large", "medium", "tiny", "none", "huge", "some"}
net = Own()
code = net.part.forward.__code__
print(torch.compile(net, backend="aot_eager")(torch.ones(3, 4), "small", b"abc" * 3).shape)
assert net.part.forward.__code__ is code
"""


@pytest.mark.slow
def test_a_module_that_pickles_its_own_parts_is_kept_by_its_members(tmp_path: Path) -> None:
    """Without the weights in those pickles, and without the new code that pickling FX makes.

    Its guards hold sets of strings, which print in another order in each process.
    """
    with Store.open(_record(tmp_path, OWN_PICKLES), write=True) as store:
        (row,) = queries.compiles(store, 1)
        bundle = queries.frame_bundle(store, row)
        assert bundle is not None
        data = store.read_blob(str(bundle.digest))
        found = replay(store, row, "frame", trust=True)
    assert (found.verdict, found.detail, found.difference) == ("identical", "", "")
    assert struct.pack("<f", 1234.5678) not in data


FAILS_WHEN_RUN = """
import torch

@torch.compile(backend="aot_eager")
def outside(x):
    return x.sin()[(x.abs() + 7).long()]

outside(torch.ones(3))
"""


@pytest.mark.slow
def test_compiled_code_that_fails_when_it_runs_fails_again(tmp_path: Path) -> None:
    """Under a backend that leaves no trace of its own in the call."""
    with Store.open(_record(tmp_path, FAILS_WHEN_RUN, status=1), write=True) as store:
        (row,) = queries.compiles(store, 1)
        (failure,) = queries.failures(store)
        found = replay(store, row, "frame", trust=True)
    assert failure.stage == "run"
    assert (found.verdict, found.detail, found.difference) == ("identical", "", "")
    assert [row.replayed for row in found.compared if row.kind == "failure"] == [1]


SCOPES_AND_VIEWS = """
import torch

class Step(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(torch.sin(x)) + 1

parts = [torch.fx.symbolic_trace(Step()) for _ in range(6)]
base = torch.arange(12.0)
column, alike = base.unsqueeze(-1), base.view(12)

@torch.compile(backend="aot_eager")
def several(x):
    for part in reversed(parts):
        x = part(x)
    return x + column.sum() + alike.sum() + base.sum()

print(several(torch.ones(3)))
"""


@pytest.mark.slow
def test_globals_of_no_module_and_views_of_all_of_a_tensor_are_as_they_were(tmp_path: Path) -> None:
    """Dynamo names such globals by their addresses, and sorts guards by those names."""
    with Store.open(_record(tmp_path, SCOPES_AND_VIEWS), write=True) as store:
        (row,) = queries.compiles(store, 1)
        found = replay(store, row, "frame", trust=True)
        names = {e.fields.expression for e in queries.events(store, row, "guards.guard")}
        views = queries.events(store, row, "describe_tensor")
    assert (found.verdict, found.detail, found.difference) == ("identical", "", "")
    assert len({name for name in names if name.startswith("G['___unnamed_scope_")}) >= 6
    assert sum("is_view" in str(view.data) for view in views) == 2


CONTEXT = """
import torch

class Sparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        y = x.sin()
        torch._dynamo.graph_break()
        if ctx.needs_input_grad[0]:
            ctx.dim = dim
            ctx.save_for_backward(y)
        return y * 2

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y, None

@torch.compile(backend="aot_eager")
def applied(x):
    return Sparse.apply(x, 1).cos()

applied(torch.ones(3, requires_grad=True)).sum().backward()
"""


@pytest.mark.slow
def test_the_context_of_an_autograd_function_is_kept(tmp_path: Path) -> None:
    """Its forward is a frame of its own where Dynamo could not trace the call as a whole."""
    with Store.open(_record(tmp_path, CONTEXT), write=True) as store:
        rows = queries.compiles(store, 1)
        assert "forward" in {row.frame_name for row in rows}
        told = _all_of(store)
    assert told == [("identical", "")] * len(told)


WORDS_OF_MODELS = """
import torch

class Model(torch.nn.Module):
    plan = {"embed_tokens": (["input_ids"], ["inputs_embeds"]), "layers": ["hidden_states"]}

    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(8, 4)

    def forward(self, x):
        return self.embed_tokens(x) * len(self.plan)

def later(input_ids, **kwargs):
    return input_ids + kwargs["inputs_embeds"]

torch.compile(Model(), backend="eager")(torch.tensor([1]))
torch.compile(later, backend="eager")(torch.ones(2), inputs_embeds=torch.ones(2))
"""


@pytest.mark.slow
def test_words_that_a_model_puts_under_tokens_are_no_secrets(tmp_path: Path) -> None:
    """They are names of arguments, which were taken out of all that was recorded from then on."""
    with Store.open(_record(tmp_path, WORDS_OF_MODELS), write=True) as store:
        bundles = [queries.frame_bundle(store, row) for row in queries.compiles(store, 1)]
        told = _all_of(store)
    assert [(row.status, row.reason) for row in bundles if row is not None] == [
        ("complete", "")
    ] * 2
    assert told == [("identical", "")] * 2


OF_A_MODULE = """
import contextvars, functools, threading
import torch

class Switch:
    def __init__(self):
        self.state = contextvars.ContextVar("state", default=None)

    def get(self):
        return self.state.get()

CURRENT = Switch()
MODE = threading.local()
MODE.scale = 2

def doubled(function):
    @functools.wraps(function)
    def wrapper(x):
        if CURRENT.get() is None and MODE is not None:
            return function(x) * 2
        return function(x)
    return wrapper

@doubled
def wrapped(x):
    return x.sin()
"""
USES_A_MODULE = """
import torch
from unpicklable import wrapped

print(torch.compile(wrapped, backend="aot_eager")(torch.ones(3)))
"""


@pytest.mark.slow
def test_globals_of_a_module_that_can_not_be_pickled_are_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _record(tmp_path, USES_A_MODULE, unpicklable=OF_A_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Store.open(path, write=True) as store:
        kept = [queries.frame_bundle(store, row) for row in queries.compiles(store, 1)]
        told = _all_of(store)
    assert {(row.status, row.reason) for row in kept if row is not None} == {("complete", "")}
    assert told == [("identical", "")] * len(told)
    assert told


CALLED_BY_RESUMED = """
import torch

class Leaf(torch.nn.Module):
    def forward(self, x):
        torch._dynamo.graph_break()
        return x.cos()

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = Leaf()

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.leaf(x) + 1

torch.compile(Outer(), backend="eager")(torch.ones(3))
"""


@pytest.mark.slow
def test_callers_of_the_same_name_and_resumed_ones_are_no_part_of_a_stack(tmp_path: Path) -> None:
    """Torch prints a function that it made under the name of the one that it goes on with."""
    with Store.open(_record(tmp_path, CALLED_BY_RESUMED), write=True) as store:
        told = _all_of(store)
    assert len(told) > 2
    assert told == [("identical", "")] * len(told)


ODDITIES = """
import torch

def names(x):
    key = "model"
    doubled = {name: value * 2 for name, value in x.items()}
    total = {value.sum() for value in x.values()}
    return doubled, total, holder.model(x["a"]), key

class Holder:
    def model(self, x):
        return x + 1

holder = Holder()
turned = torch.ones(1, 8, 2, 16, requires_grad=True).transpose(1, 2)

def strided(x):
    return x * turned.sum() + 1

inner = torch.compile(lambda values: [value + 1 for value in values], backend="eager")
inner(iter({"a": torch.ones(2)}.values()))
torch.compile(names, backend="eager")({"a": torch.ones(2)})
torch.compile(strided, backend="eager")(torch.ones(1, 8, 2, 16, requires_grad=True).transpose(1, 2))
"""


@pytest.mark.slow
def test_iterators_names_and_strides_of_one_row_are_as_they_were(tmp_path: Path) -> None:
    """An attribute is no secret, whatever constant is called a key."""
    with Store.open(_record(tmp_path, ODDITIES), write=True) as store:
        kept = [queries.frame_bundle(store, row) for row in queries.compiles(store, 1)]
        told = _all_of(store)
    assert {(row.status, row.reason) for row in kept if row is not None} == {("complete", "")}
    assert told == [("identical", "")] * len(told)
    assert len(told) >= 3


OPTIMIZERS = """
import torch

def trained(optimizer, model):
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()
        schedule.step()

    for _ in range(3):
        model(torch.randn(3, 6)).pow(2).sum().backward()
        step()
        optimizer.zero_grad()

for kind in (torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD):
    model = torch.nn.Linear(6, 6, bias=False)
    optimizer = kind(model.parameters(), lr=0.1)
    trained(optimizer, model)
"""


@pytest.mark.slow
def test_the_steps_of_optimizers_replay(tmp_path: Path) -> None:
    """Its state comes to be while its first step is traced, and later ones have guards on that.

    A scheduler wraps its `step`; and the loop lets one optimizer after the other go.
    """
    with Store.open(_record(tmp_path, OPTIMIZERS), write=True) as store:
        kept = [queries.frame_bundle(store, row) for row in queries.compiles(store, 1)]
        (program,) = queries.recordings(store)
        missed = [event.fields for event in queries.events(store, program, CacheMiss.kind)]
        told = _all_of(store)
    assert {(row.status, row.reason) for row in kept if row is not None} == {("complete", "")}
    assert any(isinstance(one, CacheMiss) and "got deallocated" in one.reason for one in missed)
    assert told == [("identical", "")] * len(told)
    assert len(told) >= 10


WRAPPED = """
import torch
from optimizers import Mine, Unwrapped

def trained(optimizer, model):
    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()

    for _ in range(2):
        model(torch.randn(3, 6)).sum().backward()
        step()
        model.zero_grad()

for kind in (torch.optim.Adam, Mine, Unwrapped):
    model = torch.nn.Linear(6, 6)
    trained(kind(model.parameters(), lr=0.1), model)
"""
MINE = """
import torch

class Mine(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "counts": [0]})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["counts"][0] += 1
            for parameter in group["params"]:
                parameter.sub_(parameter.grad * group["lr"])

class Unwrapped(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        self.lr, self.parameters = lr, [*parameters]

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            parameter.sub_(parameter.grad * self.lr)
"""


@pytest.mark.slow
def test_a_replay_wraps_the_step_of_an_optimizer_as_its_init_had(tmp_path: Path) -> None:
    """Dynamo traces the wrapper, which is in the class: it breaks the graph, and is in stacks."""
    with Store.open(_record(tmp_path, WRAPPED, optimizers=MINE), write=True) as store:
        told = [
            (str(c.id), replay(store, c, entry="frame", trust=True).verdict)
            for c in queries.compiles(store, 1)
            if c.status != "restarted"
        ]
    assert len(told) >= 6
    assert {verdict for _, verdict in told} == {"identical"}, told


ENTRIES = """
import torch

@torch.compile(backend="aot_eager", dynamic=False)
def sized(x):
    return x.sin() + 1

for size in (2, 3, 4, 2, 5, 3, 6):  # 2 and 3 find their code, and are asked first from then on
    sized(torch.ones(size))
"""


@pytest.mark.slow
def test_entries_of_a_cache_are_asked_in_the_order_of_the_program(tmp_path: Path) -> None:
    with Store.open(_record(tmp_path, ENTRIES), write=True) as store:
        (program,) = queries.recordings(store)
        asked = [event.name for event in queries.events(store, program, CacheMiss.kind)]
        told = _all_of(store)
    assert asked == ["0/0", "0/1", "0/0", "0/0", "0/2", "0/1", "0/1", "0/3", "0/0", "0/2"]
    assert told == [("identical", "")] * 5


def test_a_weak_reference_refers_to_what_a_bundle_brings() -> None:
    target, gone = type("Target", (), {})(), type("Gone", (), {})()
    weak, dead = weakref.ref(target), weakref.ref(gone)
    del gone
    made = [function(*given) for function, given in map(parts.taken_apart, (weak, dead))]  # type: ignore[misc]
    assert made[0]() is target
    assert made[1]() is None


SWAPPED = """
import torch

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(4))

    def __getstate__(self):
        return vars(self)

def both(module, x):
    return module.kept + x

model = Own()
compiled = torch.compile(both, backend="aot_eager")
compiled(model, model.kept)
before = model.kept
model.kept = torch.zeros(4)
compiled(model, before)
"""


@pytest.mark.slow
def test_a_tensor_that_took_the_place_of_another_stays_another(tmp_path: Path) -> None:
    with Store.open(_record(tmp_path, SWAPPED), write=True) as store:
        rows = queries.compiles(store, 1)
        told = _all_of(store)
    assert len(rows) == 2
    assert told == [("identical", "")] * 2


DEVICES = """
import torch

scale = torch.compile(lambda x: x * torch.ones(3), backend="aot_eager")
with torch.device("cpu"):
    scale(torch.ones(2, 3))
torch.set_default_device("cpu")
torch.compile(lambda x: x + torch.ones(3), backend="aot_eager")(torch.ones(2, 3))
"""


@pytest.mark.slow
def test_the_device_of_a_process_and_that_of_a_region_are_told_apart(tmp_path: Path) -> None:
    """Dynamo guards on the first alone."""
    with Store.open(_record(tmp_path, DEVICES), write=True) as store:
        told = _all_of(store)
    assert told == [("identical", "")] * 2


VIEW_OF_PLAIN = """
import torch

class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.zeros(2, 8).view(4, 4), x.clone()

    @staticmethod
    def backward(ctx, one, other):
        return other

view, _ = Two.apply(torch.ones(2, requires_grad=True))
assert view._is_view() and not view.is_leaf and not view._base.requires_grad
torch.compile(lambda x: x * 2, backend="aot_eager")(view)
"""


@pytest.mark.slow
def test_a_view_with_a_history_of_a_base_without_one_is_as_it_was(tmp_path: Path) -> None:
    """Compiled code returns such views."""
    with Store.open(_record(tmp_path, VIEW_OF_PLAIN), write=True) as store:
        told = _all_of(store)
    assert told == [("identical", "")]


PATCHED = """
import torch
import torch.nn.functional as F

kept, seed = F.gelu, torch.manual_seed

def gelu(x):
    return x * torch.sigmoid(1.702 * x)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        return F.gelu(self.norm(x))

def seeded(x):
    torch.manual_seed(3)
    return x + 1

torch.nn.LayerNorm.forward = lambda self, x: x - x.mean(-1, keepdim=True)
torch.manual_seed = lambda *args: seed(1337)
F.gelu = gelu
torch.compile(Model(), backend="aot_eager")(torch.ones(2, 4))
torch.compile(seeded, backend="aot_eager")(torch.ones(2))
F.gelu = kept
torch.compile(lambda x: F.gelu(x), backend="aot_eager")(torch.ones(2))
"""


@pytest.mark.slow
def test_what_a_program_put_into_modules_and_classes_of_others_is_there_again(
    tmp_path: Path,
) -> None:
    """A function of a module, a method of a class, and one that is taken out again."""
    with Store.open(_record(tmp_path, PATCHED), write=True) as store:
        told = _all_of(store)
    assert told == [("identical", "")] * 4


PATCHED_AT_TIMES = """
import torch
from unittest import mock
import torch.nn.functional as F

def mine(x):
    return x * 3

def call(x, act):
    return act(x) + 1

torch.compile(lambda x: x.tan(), backend="aot_eager")(torch.ones(3))
with mock.patch.object(F, "gelu", mine):
    torch.compile(lambda x: F.gelu(x) + 1, backend="aot_eager")(torch.ones(3))
torch.compile(call, backend="aot_eager")(torch.ones(3), F.gelu)
torch.sym_not = mine  # Dynamo has read its rules
torch.compile(lambda x: torch.sym_not(x) + 1, backend="aot_eager")(torch.ones(3))
F.layer_norm = lambda x, *rest: x - x.mean()
torch.compile(torch.nn.LayerNorm(3), backend="aot_eager")(torch.ones(3))
compiled = torch.compile(lambda x: x.cos(), backend="aot_eager")
torch.compile = lambda f=None, *args, **kwargs: f
compiled(torch.ones(3))
"""


@pytest.mark.slow
def test_changed_members_are_there_only_where_they_were(tmp_path: Path) -> None:
    """Around one compile, after Dynamo read its rules, one module further, and of torch itself."""
    with Store.open(_record(tmp_path, PATCHED_AT_TIMES), write=True) as store:
        told = _all_of(store)
    assert told == [("identical", "")] * 6


KEPT_OUT = """
import torch
import torch.nn.functional as F

private = ["Alice Example", "12 Main Street"]
weight = torch.ones(3)
F.threshold = lambda *args: private
F.gelu = lambda x: x * weight
torch.compile(lambda x: F.gelu(x) + 1, backend="aot_eager")(torch.ones(3))
"""


@pytest.mark.slow
def test_of_changed_members_nothing_is_kept_that_the_frame_does_not_come_to(tmp_path: Path) -> None:
    """And one that holds a tensor is named."""
    with Store.open(_record(tmp_path, KEPT_OUT), write=True) as store:
        (compile,) = queries.compiles(store, 1)
        row = queries.frame_bundle(store, compile)
        assert row is not None
        assert row.tensors is not None
        document = json.loads(store.read_blob(row.tensors))
        verdict = replay(store, compile, "frame", trust=True)
    assert document["patches"]["kept"] == []
    assert any("torch.nn.functional.gelu" in note for note in verdict.notes)


def _described(token: int, storage: int, **fields: Json) -> Json:
    return {
        "k": "tensor", "dtype": "float32", "device": "cpu", "layout": "strided", "size": [4],
        "stride": [1], "offset": 0, "flags": [], "requires_grad": False, "leaf": True,
        "parameter": False, "storage": storage, "storage_size": 16, "token": token, **fields,
    }  # fmt: skip


def test_tensors_of_earlier_bundles_are_taken_again_only_if_all_is_as_it_was() -> None:
    made = read_bundles._tensors([_described(101, 0), _described(102, 1)])
    again = read_bundles._tensors([_described(102, 0), _described(101, 1)])
    assert (again[0] is made[1], again[1] is made[0]) == (True, True)
    shared: Any = read_bundles._tensors([_described(101, 0), _described(102, 0)])
    assert shared[0].data_ptr() == shared[1].data_ptr()
    assert not any(one is other for one, other in zip(shared, made, strict=True))
    apart: Any = read_bundles._tensors([_described(101, 0), _described(102, 1)])
    assert apart[0].data_ptr() != apart[1].data_ptr()
    apart[0].requires_grad_()
    (later,) = read_bundles._tensors([_described(101, 0)])
    assert later is not apart[0]
    assert not later.requires_grad  # type: ignore[attr-defined]


def test_large_weights_take_no_memory() -> None:
    """To trace a frame, Dynamo wants tensors of the right layout; their values are not read."""
    layout: dict[str, Json] = {
        "size": [1 << 20, 1 << 11], "stride": [1 << 11, 1], "storage_size": 1 << 33,
    }  # fmt: skip
    weight: Any
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (weight,) = read_bundles._tensors([_described(201, 0, **layout)])
    assert weight.shape == (1 << 20, 1 << 11)
    assert weight[5, 7] == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB

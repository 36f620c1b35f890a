"""Frames of failing compiles: kept without data, and traced again in another process."""

from __future__ import annotations

import collections
import datetime
import json
import os
import pickle
import struct
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch

from tests import forks
from tests.recorder.conftest import Record
from torchreel.errors import (
    DamagedStore,
    ReplayError,
    UnsupportedError,
    UntrustedError,
    UsageError,
)
from torchreel.formats.frames import parts
from torchreel.recorder.frames import notes, pickler
from torchreel.recorder.settings import Settings
from torchreel.replay.child.frames.bundles import _unpickled, read_bundle
from torchreel.store import Store, queries
from torchreel.store.records import Compile, FrameBundle

PRELUDE = """
import os, sys, threading
import numpy as np
import torch

graphs = []

def failing(gm, inputs):
    graphs.append(gm.code)
    raise RuntimeError("on purpose")

def run(function, *args, **kwargs):
    try:
        torch.compile(function, backend=failing)(*args, **kwargs)
    except torch._dynamo.exc.TorchDynamoException as error:
        pass
    else:
        raise AssertionError("nothing failed")
"""


def traced_again(path: Path) -> str:
    """The code of the graph that the bundle of the latest failing compile gives, in this process.

    This process has never seen the program.
    """
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        graphs.append(gm.code)
        return gm.forward

    torch._dynamo.reset()
    with Store.open(path) as store:
        compile_ = queries.latest_failing(store)
        assert compile_ is not None
        frame = read_bundle(store, compile_, trust=True).load()
    frame.call(lambda function: torch.compile(function, backend=backend))
    return str(graphs[0])


def script(folder: Path, program: str, **variables: str) -> tuple[Path, str]:
    """Run a program as a script, recorded; the store and what it printed."""
    file, path = folder / "program.py", folder / "run.db"
    file.write_text(PRELUDE + textwrap.dedent(program) + '\nprint(graphs[-1], end="")\n')
    environment = {**os.environ, "TORCHREEL": f"full:{path}", **variables}
    done = forks.run([sys.executable, file], env=environment)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def bundle(path: Path) -> tuple[Compile, FrameBundle]:
    """The latest failing compile and its bundle."""
    with Store.open(path) as store:
        compile_ = queries.latest_failing(store)
        assert compile_ is not None
        found = queries.frame_bundle(store, compile_)
        assert found is not None
        assert queries.lost(store, compile_.recording_id) == []
        return compile_, found


PROGRAMS = {
    "a model": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = torch.nn.Linear(8, 8)
                self.register_buffer("bias", torch.zeros(8))

            def forward(self, x, *rest, scale=2, **more):
                return helper(self.lin(x) * scale + rest[0] + more["z"] + self.bias) + CONSTANT

        def helper(y):
            return y.sin()

        CONSTANT = torch.ones(8)
        run(Net(), torch.ones(2, 8), torch.ones(8), scale=3, z=torch.zeros(8))
    """,
    "a closure over an argument": """
        def outer(n):
            k = torch.ones(3)
            def f(x, flag):
                def inner(y):
                    return y + x * n + k
                return inner(x.sin()) if flag else x
            return f

        run(outer(4), torch.ones(3), True)
    """,
    "a resume function": """
        def f(x, y):
            z = x.sin()
            torch._dynamo.graph_break()
            return z.cos() + y * 3

        def once(gm, inputs):
            return gm.forward if "sin" in gm.code else failing(gm, inputs)

        try:
            torch.compile(f, backend=once)(torch.ones(3), torch.ones(3))
        except torch._dynamo.exc.BackendCompilerFailed:
            pass
    """,
    "shared storage and arrays": """
        base = torch.zeros(16)

        def f(x, y, array, n: int):
            return x + y + torch.from_numpy(array).sum() + n

        run(f, base[2:6], base[4:8], np.arange(6.0).reshape(2, 3), 7)
    """,
    "a dynamic size": """
        def f(x):
            return x.reshape(-1) * x.shape[0]

        torch.compile(f, backend="eager", dynamic=True)(torch.ones(3, 2))
        torch._dynamo.reset()
        run(f, torch.ones(5, 2))
    """,
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamo_traces_the_same_graph_from_a_bundle(name: str, tmp_path: Path) -> None:
    path, graph = script(tmp_path, PROGRAMS[name])
    _, row = bundle(path)
    assert (row.status, row.reason) == ("complete", "")
    assert 500 < row.size < 25_000
    (tmp_path / "program.py").unlink()
    assert traced_again(path) == graph
    assert "return" in graph


def test_a_frame_that_dynamo_can_not_trace_is_kept(record: Record) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    log = record(lambda: torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
    assert log.compile.status == "failed"
    assert queries.checkpoints(log.store, log.compile) == []
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert row.status == "complete"
    frame = read_bundle(log.store, log.compile, trust=True).load()
    assert frame.function.__code__.co_name == "f"
    with pytest.raises(torch._dynamo.exc.Unsupported):
        frame.call(lambda function: torch.compile(function, backend="eager", fullgraph=True))


def _bad(gm: object, inputs: object) -> object:
    raise RuntimeError("on purpose")


def test_only_failing_frames_are_kept_by_default(record: Record) -> None:
    def program() -> None:
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        torch.compile(lambda x: x.cos(), backend=_bad)(torch.ones(3))

    log = record(program)
    kept = [queries.frame_bundle(log.store, row) is not None for row in log.compiles]
    assert ([row.status for row in log.compiles], kept) == (["ok", "failed"], [False, True])


@pytest.mark.slow
@pytest.mark.parametrize(("frames", "expected"), [("all", [True, True]), ("none", [False, False])])
def test_all_or_none_on_demand(tmp_path: Path, frames: str, expected: list[bool]) -> None:
    program = """
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        run(lambda x: x.cos(), torch.ones(3))
    """
    path, _ = script(tmp_path, program, TORCHREEL_FRAMES=frames)
    with Store.open(path) as store:
        rows = queries.compiles(store, 1)
        assert [queries.frame_bundle(store, row) is not None for row in rows] == expected


def test_a_frame_that_kills_the_process_is_there_when_all_are_kept(tmp_path: Path) -> None:
    file, path = tmp_path / "program.py", tmp_path / "run.db"
    file.write_text(
        "import os, torch\ndef kill(gm, inputs): os._exit(9)\n"
        "torch.compile(lambda x: x.sin(), backend=kill)(torch.ones(3))\n"
    )
    environment = {**os.environ, "TORCHREEL": f"full:{path}", "TORCHREEL_FRAMES": "all"}
    assert forks.run([sys.executable, file], env=environment).returncode == 9
    with Store.open(path) as store:
        (row,) = queries.compiles(store, 1)
        assert row.status == "crashed"
        assert read_bundle(store, row, trust=True).load().function.__code__.co_names == ("sin",)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="failing, all or none"):
        Settings(frames="some")


# -- no data ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_weights_are_in_the_store(tmp_path: Path) -> None:
    """Parameters, buffers, globals, closures, arrays and arguments: none of their bytes."""
    numbers = [1234.5678, 2345.6789, 3456.7891, 4567.8912, 5678.9123]
    program = f"""
        class Net(torch.nn.Module):
            def __init__(self, weight, buffer, plain):
                super().__init__()
                self.weight = torch.nn.Parameter(weight)
                self.register_buffer("buffer", buffer)
                self.plain = [plain]

            def forward(self, x, array):
                y = self.weight + self.buffer + self.plain[0] + x
                return y + GLOBAL + torch.from_numpy(array)

        tensors = [torch.full((64,), number) for number in {numbers}]
        GLOBAL = tensors[3]
        run(Net(*tensors[:3]), tensors[4], np.full(64, {numbers[0]}))
    """
    path, graph = script(tmp_path, program)
    _, row = bundle(path)
    assert row.status == "complete"
    with Store.open(path) as store:
        data = store.read_blob(str(row.digest))
        described = json.loads(store.read_blob(str(row.tensors)))["tensors"]
    assert [item["k"] for item in described].count("tensor") == 5
    assert [item["size"] for item in described] == [[64]] * 6
    for number in numbers:
        for form in ("<f", "<d", ">f", ">d"):
            assert struct.pack(form, number)[:4] not in data
    assert graph.count("torch.Tensor") > 3


@pytest.mark.slow
def test_a_bundle_needs_trust(tmp_path: Path) -> None:
    path, _ = script(tmp_path, "run(lambda x: x.sin(), torch.ones(3))")
    compile_, row = bundle(path)
    with Store.open(path) as store, pytest.raises(UntrustedError, match="--trust"):
        read_bundle(store, compile_).load()
    assert row.digest is not None


@pytest.mark.slow
def test_a_strangers_bundle_runs_nothing_without_trust(tmp_path: Path) -> None:
    path, _ = script(tmp_path, "run(lambda x: x.sin(), torch.ones(3))")
    compile_, row = bundle(path)
    flag = tmp_path / "owned"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(flag),)

    with Store.open(path, write=True) as store:
        with store.writer() as writer:
            writer.update("frame_bundles", row.id, digest=writer.blob(pickle.dumps(Evil())))
        with pytest.raises(UntrustedError):
            read_bundle(store, compile_).load()
        assert not flag.exists()
        with pytest.raises(DamagedStore):
            read_bundle(store, compile_, trust=True).load()
    assert flag.exists()  # trust means that


@pytest.mark.slow
def test_a_damaged_bundle_is_told(tmp_path: Path) -> None:
    path, _ = script(tmp_path, "run(lambda x: x.sin(), torch.ones(3))")
    compile_, row = bundle(path)
    for data in (b"", b"junk", b"\x80\x03K\x05Q."):
        with Store.open(path, write=True) as store:
            with store.writer() as writer:
                writer.update("frame_bundles", row.id, digest=writer.blob(data))
            with pytest.raises(DamagedStore):
                read_bundle(store, compile_, trust=True).load()


def test_a_frame_that_was_not_kept_is_told(record: Record) -> None:
    log = record(lambda: torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3)))
    with pytest.raises(UnsupportedError, match="was not kept"):
        read_bundle(log.store, log.compile, trust=True).load()


# -- what can't be pickled ----------------------------------------------------------------------


@pytest.mark.slow
def test_what_can_not_be_pickled_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    program = """
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.numbers = (n for n in range(3))
                self.lin = torch.nn.Linear(4, 4)

            def forward(self, x, log):
                return self.lin(x)

        run(Model(), torch.ones(2, 4), open(os.devnull))
    """
    path, graph = script(tmp_path, program)
    _, row = bundle(path)
    assert row.status == "partial"
    assert "builtins.generator: it can't be pickled (TypeError)" in row.reason
    assert traced_again(path) == graph


@pytest.mark.slow
@pytest.mark.parametrize(
    "opened",
    ["open(path)", "open(path, 'rb')", "io.StringIO(text)", "io.BytesIO(text.encode())"],
)
def test_what_is_in_a_file_is_not_kept(tmp_path: Path, opened: str) -> None:
    program = f"""
        import io, pathlib, sys
        path = pathlib.Path(__file__).with_name("file.txt")
        text = path.read_text()
        file, error = {opened}, sys.stderr
        del text
        file.read(3)
        def f(x):
            return x + 1 if file.readable() and error.writable() else x
        run(f, torch.ones(2))
        assert file.tell() == 3
    """
    (tmp_path / "file.txt").write_text("zqvkwjxb " * 3)
    path, _ = script(tmp_path, program)
    _, row = bundle(path)
    assert "what is in a file is data" in row.reason
    assert row.digest is not None
    with Store.open(path) as store:
        assert b"zqvkwjxb" not in store.read_blob(row.digest)


@pytest.mark.slow
def test_what_a_module_knows_by_its_name_is_taken_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "kernels_by_name.py").write_text(
        textwrap.dedent("""
        import functools, threading

        class Kernel:
            def __init__(self, function):
                functools.update_wrapper(self, function)
                self.lock = threading.Lock()

            def __call__(self, x):
                return self.__wrapped__(x)

        @Kernel
        def kernel(x):
            return x.sin()
        """)
    )
    path, graph = script(
        tmp_path,
        "from kernels_by_name import kernel\nrun(lambda x, k: k(x) + 1, torch.ones(3), kernel)",
    )
    _, row = bundle(path)
    assert (row.status, row.reason) == ("complete", "")
    assert traced_again(path) == graph


def test_an_object_that_raises_costs_only_itself(record: Record) -> None:
    # With a state of C, which their members do not show.
    class Wild(property):
        def __reduce_ex__(self, protocol: object) -> str:
            raise ZeroDivisionError("never pickle me")

    class Lying(property):
        def __reduce__(self) -> str:
            return "no_such_global"

    def f(x: torch.Tensor, wild: object, lying: object) -> torch.Tensor:
        return x.sin()

    log = record(lambda: torch.compile(f, backend=_bad)(torch.ones(3), Wild(), Lying()))
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert row.status == "partial"
    assert "Wild: only code of its own could say what it is made of" in row.reason
    assert "Lying: only code of its own could say what it is made of" in row.reason
    frame = read_bundle(log.store, log.compile, trust=True).load()
    assert isinstance(frame.args[0], torch.Tensor)
    assert "Lying" in str(frame.missing)
    assert log.lost() == []


@pytest.mark.parametrize(
    ("home", "name", "value", "reason"),
    [(pickler, "LARGEST", 1000, "larger than"), (notes, "LONGEST", 0.0, "longer than")],
)
def test_size_and_time_are_bounded(
    record: Record,
    monkeypatch: pytest.MonkeyPatch,
    home: ModuleType,
    name: str,
    value: float,
    reason: str,
) -> None:
    monkeypatch.setattr(home, name, value)

    def f(x: torch.Tensor, text: str) -> torch.Tensor:
        return x.sin()

    log = record(lambda: torch.compile(f, backend=_bad)(torch.ones(3), "many " * 1000))
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert (row.status, row.digest, row.size) == ("refused", None, 0)
    assert reason in row.reason
    with pytest.raises(UnsupportedError, match=reason):
        read_bundle(log.store, log.compile, trust=True).load()


CALLED: list[str] = []


class Spied:
    def __reduce__(self) -> str:
        CALLED.append("reduce")
        return "never"


class Stated:
    def __getstate__(self) -> object:
        CALLED.append("getstate")
        raise AssertionError


class Lazy:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        CALLED.append("class")
        return dict


class Watched:
    def __getattribute__(self, name: str) -> object:
        CALLED.append(f"attribute {name}")
        return object.__getattribute__(self, name)


class Asked:
    def __getattr__(self, name: str) -> object:
        CALLED.append(f"no attribute {name}")
        raise AttributeError(name)


class Counted(dict[str, int]):
    def items(self) -> Any:
        CALLED.append("items")
        return super().items()


class Iterated(list[int]):
    def __iter__(self) -> Iterator[int]:
        CALLED.append("iter")
        return super().__iter__()


class Named(str):
    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        CALLED.append(f"no attribute {name}")
        raise AttributeError(name)


class Gathered(set[int]):
    def __reduce__(self) -> str:
        CALLED.append("reduce of a set")
        return "never"


class Looked(torch.Tensor):
    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        CALLED.append("is_leaf")
        return True

    @property
    def grad(self) -> None:  # type: ignore[override]
        CALLED.append("grad")

    def untyped_storage(self) -> torch.UntypedStorage:
        CALLED.append("storage")
        return super().untyped_storage()


HELD = {
    "spied": Spied(), "stated": Stated(), "lazy": Lazy(), "watched": Watched(), "asked": Asked(),
    "counted": Counted(a=1), "iterated": Iterated([1, 2]), "named": Named("four"),
    "gathered": Gathered([3]),
    "looked": torch.ones(3).as_subclass(Looked), "scale": 2,
}  # fmt: skip


def test_nothing_of_the_program_is_called_for_a_bundle(record: Record) -> None:
    """A method may wait for a lock that the thread which compiles has, or hand out a reference."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * HELD["scale"]  # type: ignore[operator]

    def program() -> None:
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(f, backend=_bad)(torch.ones(3))

    CALLED.clear()
    program()
    without = list(CALLED)
    CALLED.clear()
    log = record(program)
    assert without == CALLED  # Dynamo's own
    frame = read_bundle(log.store, log.compile, trust=True).load()
    held: Any = frame.function.__globals__["HELD"]
    assert dict.items(held["counted"]) == {"a": 1}.items()
    assert list.__len__(held["iterated"]) == 2
    assert (type(held["named"]).__name__, str.__str__(held["named"])) == ("Named", "four")
    assert set.union(held["gathered"]) == {3}


def loaded(content: object) -> Any:
    """Pickle an object and read it again, in this process, where bundles share what has a token."""
    data, reason = pickler.pickled(content, lambda value: None, notes.Notes())
    assert data is not None, reason
    return _unpickled(data, [], "here")


def test_a_value_is_not_taken_from_an_earlier_bundle() -> None:
    """Another may have had its id, and nothing can be written into it."""
    for number in range(50):
        assert str.__str__(loaded(Named(f"text {number}"))) == f"text {number}"
    grown = Gathered([1])
    assert set.union(loaded(grown)) == {1}
    grown.add(2)
    assert set.union(loaded(grown)) == {1, 2}


def test_a_constant_of_code_is_no_data() -> None:
    numbers = ", ".join(f"{number}.5" for number in range(1001))
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def total(): return sum(({numbers}))", scope)
    assert loaded(scope["total"])() == scope["total"]()


class Dated(datetime.date):
    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


class Failing(ValueError):
    def __reduce__(self) -> str:
        return "never"


class Scalar(numpy.float64):
    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def test_objects_of_c_beneath_a_class_of_the_programs() -> None:
    date, failure, scalar = loaded([Dated(2026, 11, 29), Failing("a", 2), Scalar(3)])
    assert (type(date).__name__, date.toordinal()) == ("Dated", Dated(2026, 11, 29).toordinal())
    assert type(failure).__name__ == "Failing"
    assert isinstance(scalar, parts.Opaque)  # NumPy ends the process when it is asked for one


class Sampled(list[float]):
    def __iter__(self) -> Iterator[float]:
        raise AssertionError


class Packed(bytearray):
    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


class Raw(bytes):
    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def test_data_of_classes_of_the_programs_is_left_out() -> None:
    large = [Sampled([0.5] * 1001), Packed(b"ab" * 4096), Raw(b"ab" * 4096)]
    for value, small in zip(large, (Sampled([0.5]), Packed(b"ab"), Raw(b"ab")), strict=True):
        data, _ = pickler.pickled([value, 1], lambda value: None, taken := notes.Notes())
        assert data is not None
        assert len(data) < 1000
        assert "are data" in taken.reason()
        assert isinstance(_unpickled(data, [], "here")[0], parts.Opaque)
        assert type(loaded(small)).__name__ == type(small).__name__


class Cancelled(BaseException):
    pass


class Refusing(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__module__":
            raise Cancelled
        return type.__getattribute__(cls, name)


def test_what_ends_a_bundle_does_not_end_the_program(record: Record) -> None:
    def f(x: torch.Tensor, held: object) -> torch.Tensor:
        return x.sin()

    def program() -> None:
        held = Refusing("Held", (), {})()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(f, backend=_bad)(torch.ones(3), [held])

    log = record(program)
    assert queries.frame_bundle(log.store, log.compile) is not None


def test_the_limit_of_recursion_stays_where_other_threads_are(record: Record) -> None:
    """It is one for all threads, and another may be deep in calls."""
    known, limits, ends = sys.getrecursionlimit(), set[int](), threading.Event()

    def watch() -> None:
        while not ends.wait(0.001):
            limits.add(sys.getrecursionlimit())

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def program() -> None:
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(f, backend=_bad)(torch.ones(3))

    watcher = threading.Thread(target=watch)
    sys.setrecursionlimit(20_000)
    try:
        watcher.start()
        log = record(program)
    finally:
        ends.set()
        watcher.join()
        sys.setrecursionlimit(known)
    assert limits == {20_000}
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert "recursion limit" in row.reason


def test_weights_as_a_list_are_not_kept(record: Record) -> None:
    weights = torch.rand(40, 50).flatten().tolist()

    def f(x: torch.Tensor, held: dict[str, object]) -> torch.Tensor:
        return x.sin() * held["scale"]  # type: ignore[operator]

    program = {"weights": [[1.0, 2.0], weights], "scale": 2.0}
    log = record(lambda: torch.compile(f, backend=_bad)(torch.ones(3), program))
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert "list: 2000 floats are data" in row.reason
    frame = read_bundle(log.store, log.compile, trust=True).load()
    assert frame.args[1]["weights"][0] == [1.0, 2.0]


@pytest.mark.parametrize("large", ["vocabulary", "samples"])
def test_a_frame_does_without_a_container_that_is_too_large(record: Record, large: str) -> None:
    """Most of what makes a frame so large is data: Dynamo reads nothing of it."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = [1.0, 2.0]
            if large == "vocabulary":
                self.words = {f"word number {n}": n for n in range(300_000)}
            else:
                self.buffer = collections.deque((n, str(n), None) for n in range(400_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() * self.scales[1]

    log = record(lambda: torch.compile(Model(), backend=_bad)(torch.ones(3)))
    row = queries.frame_bundle(log.store, log.compile)
    assert row is not None
    assert row.status == "partial"
    assert "00 items are data" in row.reason
    model = read_bundle(log.store, log.compile, trust=True).load().args[0]
    assert model.scales == [1.0, 2.0]
    with pytest.raises(AttributeError, match="00 items of data"):
        iter(model.words if large == "vocabulary" else model.buffer)


def test_the_program_gets_its_own_exception_and_its_objects_back(record: Record) -> None:
    held: list[object] = []

    def f(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        return x.sin() + items[0]

    def program() -> None:
        x, items = torch.ones(3), [1, 2]
        state = torch.random.get_rng_state()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="on purpose"):
            torch.compile(f, backend=_bad)(x, items)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert sys.getrefcount(items) == 2
        held.append(items)

    log = record(program)
    assert held == [[1, 2]]
    assert queries.frame_bundle(log.store, log.compile) is not None


# -- redaction ----------------------------------------------------------------------------------

SECRETS = ("hunter2-hunter2", "zebra-crossing-99", "tiger-in-tank-7", "monkey-business-5")


@pytest.mark.slow
def test_secrets_are_taken_out_of_a_bundle(tmp_path: Path) -> None:
    """In the environment, under a telling key, and as constants of the code."""
    program = f"""
        SETTINGS = {{"api_key": "{SECRETS[1]}", "depth": 3}}
        SECOND = {{"api_key": "{SECRETS[3]}"}}

        def f(x, variables):
            password = "{SECRETS[2]}"
            return x.sin() * SETTINGS["depth"] + len(password) + len(SECOND)

        run(f, torch.ones(3), dict(os.environ))
    """
    path, graph = script(tmp_path, program, MY_TOKEN=SECRETS[0])
    _, row = bundle(path)
    assert row.status == "partial"
    assert "strings were redacted" in row.reason
    with Store.open(path) as store:
        data = store.read_blob(str(row.digest))
        for secret in SECRETS:
            assert secret.encode() not in data
        assert b"<redacted>" in data
        frame = read_bundle(store, bundle(path)[0], trust=True).load()
        assert frame.args[1]["MY_TOKEN"] == "<redacted>"
    assert "sin" in graph


@pytest.mark.slow
def test_nothing_is_kept_where_all_text_is_redacted(tmp_path: Path) -> None:
    path, _ = script(tmp_path, "run(lambda x: x.sin(), torch.ones(3))", TORCHREEL_REDACT="all")
    _, row = bundle(path)
    assert (row.status, row.digest) == ("refused", None)
    assert "redacted" in row.reason


def test_a_bundle_that_needs_what_was_not_kept_says_so() -> None:
    data = pickle.dumps({"hook": _Attribute(parts.Opaque("some.Type", "it can't be pickled"))})
    with pytest.raises(ReplayError, match=r"is not complete: a some\.Type was not kept"):
        _unpickled(data, [], "1/0/0")
    assert repr(pickle.loads(pickle.dumps(parts.Opaque("some.Type", "why")))) == "<some.Type: why>"


class _Attribute:
    """Is pickled as an attribute of another object, as bound methods are."""

    def __init__(self, of: object) -> None:
        self.of = of

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self.of, "method")


@pytest.mark.slow
def test_a_compile_that_returns_loads_nothing_that_pickles(tmp_path: Path) -> None:
    program = (
        "import sys, torch\n"
        "torch.compile(torch.sin, backend='aot_eager')(torch.ones(2))\n"
        "print('torchreel.formats.graphs' in sys.modules, 'cloudpickle' in sys.modules)\n"
    )
    done = forks.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCHREEL": f"full:{tmp_path / 'run.db'}"},
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]

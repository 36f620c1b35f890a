"""The recordings of the examination: made once, in a folder, and minified as far as time allows.

Lives here: running a program under the recorder, in a fork of a process that has torch imported,
and reducing what failed with one warm worker.  Not here: the programs (`programs`), the grouping.
"""

from __future__ import annotations

import importlib
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.triage.programs import Variant
from torchreel.minifier.oracle.worker_oracle import WorkerOracle

STORE = "run.db"
_REDUCED = "reduced.txt"
_SECONDS = 400
"""How long one program may take."""


def record(folder: Path, wanted: Sequence[Variant]) -> None:
    """Record the variants that are not in the folder yet, each in a process of its own."""
    missing = [variant for variant in wanted if not (folder / variant.name / STORE).exists()]
    if not missing:
        return
    _warm_up()
    for number, variant in enumerate(missing, 1):
        place = folder / variant.name
        began = time.monotonic()
        status = _in_fork(place, variant)
        took = time.monotonic() - began
        print(
            f"recorded {number}/{len(missing)} {variant.name}: {status}, {took:.0f} s", flush=True
        )


def _warm_up() -> None:
    """Import here what each fork would import again; the recorder itself begins in the fork."""
    import torch

    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.compile(lambda x: x.sin() + 1)(torch.ones(2))
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            _list_imports(Path(folder))
        os.waitpid(pid, 0)
        names = Path(folder, "names").read_text().split()
    for name in names:
        if name not in sys.modules and name.partition(".")[0] in _WARMED:
            with suppress(ImportError, AttributeError):
                importlib.import_module(name)


_WARMED = ("torchreel", "torch", "sqlalchemy", "zstandard", "sqlite3")


def _list_imports(folder: Path) -> None:
    """Record a program that fails, and write down what that imported; never returns."""
    import torch

    import torchreel

    try:
        with suppress(Exception), torchreel.record(folder / STORE):
            torch.compile(lambda x: x + 1 if x.sum() > 0 else x, fullgraph=True)(torch.ones(2))
        folder.joinpath("names").write_text("\n".join(sorted(sys.modules)))
    finally:
        os._exit(0)


def _in_fork(place: Path, variant: Variant) -> int:
    from torchreel.store import Store
    from torchreel.store.post_mortem import settle

    shutil.rmtree(place, ignore_errors=True)
    # The name of the folder differs, and so does that of the file.
    file = place / f"job_{variant.number}" / f"train{variant.number}.py"
    file.parent.mkdir(parents=True)
    file.write_text(variant.text)
    if variant.case is not None:
        shutil.copyfile(variant.case, file.parent / f"case_file_{variant.number}.py")
    pid = os.fork()
    if pid == 0:
        _run(file, place / STORE, variant.rank)
    _, status = os.waitpid(pid, 0)
    if (place / STORE).exists():
        with Store.open(place / STORE, write=True) as store:
            settle(store)
    return status


def _run(file: Path, store: Path, rank: int) -> None:
    """Run a program as a process of its own would; never returns."""
    import torchreel

    status = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.alarm(_SECONDS)
        os.environ["RANK"] = str(rank)
        sys.argv, sys.path[0] = [str(file)], str(file.parent)
        with torchreel.record(store):
            runpy.run_path(str(file), run_name="__main__")
        status = 0
    finally:
        os._exit(status)


def minify(folder: Path, wanted: Sequence[Variant], seconds: float) -> None:
    """Reduce the variants that are not reduced yet, `seconds` each at most."""
    missing = [
        variant
        for variant in wanted
        if (folder / variant.name / STORE).exists()
        and not (folder / variant.name / _REDUCED).exists()
    ]
    if not missing:
        return
    from torchreel.store.failures.signature import Signature

    nothing = Signature("exception", "lowering", message="nothing fails like this")
    with WorkerOracle(nothing) as oracle, WorkerOracle(nothing, trust=True) as trusting:
        for number, variant in enumerate(missing, 1):
            place = folder / variant.name
            began = time.monotonic()
            told = _reduced(place, variant, seconds, oracle, trusting)
            place.joinpath(_REDUCED).write_text(told)
            took = time.monotonic() - began
            print(
                f"reduced {number}/{len(missing)} {variant.name}: {told}, {took:.0f} s", flush=True
            )


def _reduced(
    place: Path, variant: Variant, seconds: float, oracle: WorkerOracle, trusting: WorkerOracle
) -> str:
    from torchreel.errors import TorchreelError
    from torchreel.minifier.minify import minify as reduce
    from torchreel.minifier.options import Budget, MinifyOptions
    from torchreel.store import Store, queries

    try:
        with Store.open(place / STORE, write=True) as store:
            compile = queries.latest_failing(store)
            failure = queries.failure_of(store, compile) if compile is not None else None
            by_source = failure is not None and failure.stage == "dynamo"
            options = MinifyOptions(limits=Budget(seconds=seconds), trust=by_source)
            found = reduce(
                store, compile, accuracy=variant.is_wrong, options=options,
                oracle=trusting if by_source else oracle,
            )  # fmt: skip
            return f"{found.status}: {found.case.call_nodes} {found.case.unit}s"
    except TorchreelError as error:
        return f"not reduced: {error}"
